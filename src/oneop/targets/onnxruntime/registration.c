/* registration.c: RegisterCustomOps, the one function that ONNX Runtime looks for, and the answers to its questions.
 * C11. */
#include "adapter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond this many combinations of dtypes, only those that have a kernel are registered. */
#define MAX_COMBINATIONS 512

/* What this library has for one ONNX Runtime; a process may hold several. Sessions point into it for as long as they
 * live and nobody says when the last one ends, so it is kept: a few kilobytes, once a runtime. */
typedef struct registration {
  const OrtApi *api;
  uint32_t version;
  adapter_op *ops; /* a list */
  struct registration *next;
} registration;

static OrtStatus *make_registration(const OrtApi *api, uint32_t version, registration **out);
static OrtStatus *hand_over(const registration *made, OrtSessionOptions *options);
static OrtStatus *out_of_memory(const OrtApi *api);
static OrtStatus *too_old(const OrtApiBase *base);
static uint32_t newest_version(const OrtApiBase *base);

ONEOP_EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  static registration *registrations;
  static atomic_flag busy = ATOMIC_FLAG_INIT;
  uint32_t version = newest_version(base);
  const OrtApi *api = version >= ORT_API_VERSION_NEEDED ? base->GetApi(version) : NULL;
  if (api == NULL)
    return too_old(base);
  while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
  }
  OrtStatus *status = NULL;
  registration *made = registrations;
  while (made != NULL && made->api != api)
    made = made->next;
  if (made == NULL) {
    status = make_registration(api, version, &made);
    if (status == NULL) {
      made->next = registrations;
      registrations = made;
    }
  }
  atomic_flag_clear_explicit(&busy, memory_order_release);
  return status != NULL ? status : hand_over(made, options);
}

/* The newest version of the API that is of use here. Runtimes print a line when asked for more than they have, hence
 * the look at the release ("1.25.0" serves version 25); 0 where it is older than what is needed. */
static uint32_t newest_version(const OrtApiBase *base) {
  int major = 0, minor = 0;
  if (sscanf(base->GetVersionString(), "%d.%d", &major, &minor) != 2)
    return ORT_API_VERSION_NEEDED;
  if (major > 1 || minor >= ORT_API_VERSION_STRINGS)
    return ORT_API_VERSION_STRINGS;
  if (minor >= ORT_API_VERSION_SHAPE_REFERENCE)
    return ORT_API_VERSION_SHAPE_REFERENCE;
  if (minor >= ORT_API_VERSION_DEVICE)
    return ORT_API_VERSION_DEVICE;
  return minor >= ORT_API_VERSION_NEEDED ? ORT_API_VERSION_NEEDED : 0;
}

/* Version 1 of the API has been served by every release, and CreateStatus is its first entry. */
static OrtStatus *too_old(const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(1);
  const char *format =
      "%s needs ONNX Runtime " ORT_RELEASE_NEEDED " or newer; this is %s. Install a newer onnxruntime.";
  if (api != NULL)
    return adapter_error(api, ORT_NOT_IMPLEMENTED, format, adapter_library_name, base->GetVersionString());
  /* No way to return an error: say it where it can be read, and leave the session without the operators. */
  fprintf(stderr, format, adapter_library_name, base->GetVersionString());
  fputc('\n', stderr);
  return NULL;
}

/* ---- Domains ---------------------------------------------------------------------------------------------------- */

/* ONNX Runtime takes one domain object of each name in a session, but definition files that share a namespace have a
 * library each. So the first of them leaves the address of its domain object in the session options, where the others
 * find it and add their operators. A second registration of the same library finds itself there, and does nothing.
 * Domain objects live on like the registration: the options may be gone before the sessions. */
static bool recall(const OrtApi *api, const OrtSessionOptions *options, const char *key, void **value);
static OrtStatus *remember(const OrtApi *api, OrtSessionOptions *options, const char *key, const void *value);
static OrtStatus *find_domain(const OrtApi *api, OrtSessionOptions *options, const char *name, OrtCustomOpDomain **out);

static OrtStatus *hand_over(const registration *made, OrtSessionOptions *options) {
  char key[64];
  void *found = NULL;
  snprintf(key, sizeof key, "oneop.library.%p", (const void *)made);
  if (recall(made->api, options, key, &found))
    return NULL;
  for (const adapter_op *op = made->ops; op != NULL; op = op->next) {
    OrtCustomOpDomain *domain = NULL;
    OrtStatus *status = find_domain(made->api, options, op->text->domain, &domain);
    if (status == NULL)
      status = ORT_CALL(made->api, CustomOpDomain_Add)(domain, &op->base);
    if (status != NULL)
      return status;
  }
  return remember(made->api, options, key, made);
}

static OrtStatus *find_domain(const OrtApi *api, OrtSessionOptions *options, const char *name,
                              OrtCustomOpDomain **out) {
  char key[128]; /* the longest that is taken */
  void *found = NULL;
  if (snprintf(key, sizeof key, "oneop.domain.%s", name) >= (int)sizeof key)
    return adapter_error(api, ORT_INVALID_ARGUMENT, "%s: the namespace `%s` is too long for ONNX Runtime. Shorten it.",
                         adapter_library_name, name);
  if (recall(api, options, key, &found)) {
    *out = found;
    return NULL;
  }
  OrtStatus *status = ORT_CALL(api, CreateCustomOpDomain)(name, out);
  if (status == NULL)
    status = ORT_CALL(api, AddCustomOpDomain)(options, *out);
  return status != NULL ? status : remember(api, options, key, *out);
}

static bool recall(const OrtApi *api, const OrtSessionOptions *options, const char *key, void **value) {
  char text[32];
  size_t size = sizeof text;
  int known = 0;
  return adapter_ok(api, ORT_CALL(api, HasSessionConfigEntry)(options, key, &known)) && known != 0 &&
         adapter_ok(api, ORT_CALL(api, GetSessionConfigEntry)(options, key, text, &size)) &&
         sscanf(text, "%p", value) == 1;
}

static OrtStatus *remember(const OrtApi *api, OrtSessionOptions *options, const char *key, const void *value) {
  char text[32];
  snprintf(text, sizeof text, "%p", value);
  return ORT_CALL(api, AddSessionConfigEntry)(options, key, text);
}

/* ---- Registrations ---------------------------------------------------------------------------------------------- */

static OrtStatus *add_operator(registration *made, const adapter_operator *text, int32_t device);

static OrtStatus *make_registration(const OrtApi *api, uint32_t version, registration **out) {
  registration *made = calloc(1, sizeof *made);
  if (made == NULL)
    return out_of_memory(api);
  made->api = api;
  made->version = version;
  for (int32_t i = 0; i < adapter_n_operators; ++i) {
    OrtStatus *status = add_operator(made, &adapter_operators[i], ADAPTER_CPU);
    if (status == NULL && version >= ORT_API_VERSION_DEVICE)
      status = add_operator(made, &adapter_operators[i], ADAPTER_CUDA);
    if (status != NULL)
      return status;
  }
  *out = made;
  return NULL;
}

static const oneop_operator *entry_of(const adapter_operator *text) {
  const oneop_library *library = adapter_kernels();
  for (int32_t i = 0; i < library->n_operators; ++i)
    if (strcmp(library->operators[i].name, text->name) == 0)
      return &library->operators[i];
  return NULL;
}

static bool same_dtype(oneop_dtype a, oneop_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

oneop_function adapter_find_kernel(const oneop_operator *entry, const adapter_operator *text, const int32_t *types,
                                   int32_t device) {
  for (int32_t i = 0; i < entry->n_kernels; ++i) {
    const oneop_kernel *kernel = &entry->kernels[i];
    bool fits = kernel->device_type == device;
    for (int32_t j = 0; fits && j < text->n_elements; ++j)
      fits = same_dtype(kernel->dtypes[j], adapter_types[types[j]].dtype);
    if (fits)
      return kernel->run;
  }
  return NULL;
}

static int64_t count_combinations(const adapter_operator *text) {
  int64_t count = 1;
  for (int32_t i = 0; i < text->n_elements && count <= MAX_COMBINATIONS; ++i)
    count *= text->elements[i].n_types;
  return count;
}

static bool next_combination(const adapter_operator *text, int32_t *digits) {
  for (int32_t i = text->n_elements - 1; i >= 0; --i) {
    if (++digits[i] < text->elements[i].n_types)
      return true;
    digits[i] = 0;
  }
  return false;
}

static void fill_callbacks(OrtCustomOp *base, const adapter_operator *text, uint32_t version);

/* One registration for each combination of dtypes. ONNX Runtime refuses a model whose dtypes no registration names, in
 * words of its own that do not say what to do. So combinations without a kernel are registered too, and say it when a
 * session is made. Not so for CUDA: there the runtime takes the CPU's registration instead. A runtime without that provider
 * does not look at what is registered for it. */
static OrtStatus *add_operator(registration *made, const adapter_operator *text, int32_t device) {
  const oneop_operator *entry = entry_of(text);
  if (entry == NULL || entry->n_dtypes != text->n_elements || entry->n_attributes != text->n_attributes)
    return adapter_error(made->api, ORT_FAIL, "%s: its kernels do not fit its table (%s). Build it again.",
                         adapter_library_name, text->name);
  bool all = device == ADAPTER_CPU && count_combinations(text) <= MAX_COMBINATIONS;
  int32_t *digits = calloc((size_t)text->n_elements + 1, sizeof *digits);
  if (digits == NULL)
    return out_of_memory(made->api);
  OrtStatus *status = NULL;
  do {
    adapter_op *op = calloc(1, sizeof *op);
    int32_t *types = calloc((size_t)text->n_elements + 1, sizeof *types);
    if (types != NULL && op != NULL) {
      for (int32_t i = 0; i < text->n_elements; ++i)
        types[i] = text->elements[i].types[digits[i]];
      *op = (adapter_op){
          .api = made->api, .version = made->version, .text = text, .entry = entry, .device = device, .types = types};
      op->run = adapter_find_kernel(entry, text, types, device);
      if (op->run != NULL || all) {
        fill_callbacks(&op->base, text, made->version);
        op->next = made->ops;
        made->ops = op;
        continue;
      }
    } else {
      status = out_of_memory(made->api);
    }
    free(types);
    free(op);
  } while (status == NULL && next_combination(text, digits));
  free(digits);
  return status;
}

/* ---- Answers ---------------------------------------------------------------------------------------------------- */

static const adapter_op *self(const OrtCustomOp *base) { return (const adapter_op *)base; }

static const char *get_name(const OrtCustomOp *base) { return self(base)->text->onnx_name; }

static const char *get_provider(const OrtCustomOp *base) {
  return self(base)->device == ADAPTER_CUDA ? "CUDAExecutionProvider" : NULL; /* the CPU */
}

static size_t get_input_count(const OrtCustomOp *base) { return (size_t)self(base)->text->n_inputs; }

static size_t get_output_count(const OrtCustomOp *base) { return (size_t)self(base)->text->n_outputs; }

static int get_input_type(const OrtCustomOp *base, size_t index) {
  return adapter_type_of(self(base), &self(base)->text->inputs[index])->onnx;
}

static int get_output_type(const OrtCustomOp *base, size_t index) {
  return adapter_type_of(self(base), &self(base)->text->outputs[index])->onnx;
}

static int get_input_characteristic(const OrtCustomOp *base, size_t index) {
  return self(base)->text->inputs[index].arity;
}

static int get_output_characteristic(const OrtCustomOp *base, size_t index) {
  return self(base)->text->outputs[index].arity;
}

static int get_memory_type(const OrtCustomOp *base, size_t index) {
  (void)base;
  (void)index;
  return 0; /* wherever the provider works: the GPU's memory, for CUDA */
}

static int one(const OrtCustomOp *base) {
  (void)base;
  return 1;
}

static bool may_lack_inputs(const adapter_operator *text) {
  for (int32_t i = 0; i < text->n_inputs; ++i)
    if (text->inputs[i].arity == ORT_OPTIONAL)
      return true;
  return false;
}

static void fill_callbacks(OrtCustomOp *base, const adapter_operator *text, uint32_t version) {
  base->version = ORT_API_VERSION_NEEDED;
  base->GetName = get_name;
  base->GetExecutionProviderType = get_provider;
  base->GetInputType = get_input_type;
  base->GetInputTypeCount = get_input_count;
  base->GetOutputType = get_output_type;
  base->GetOutputTypeCount = get_output_count;
  base->KernelDestroy = adapter_destroy;
  base->GetInputCharacteristic = get_input_characteristic;
  base->GetOutputCharacteristic = get_output_characteristic;
  base->GetInputMemoryType = get_memory_type;
  base->GetVariadicInputMinArity = one;
  base->GetVariadicInputHomogeneity = one;
  base->GetVariadicOutputMinArity = one;
  base->GetVariadicOutputHomogeneity = one;
  base->CreateKernelV2 = adapter_create;
  base->KernelComputeV2 = adapter_compute;
  if (version >= ORT_API_VERSION_ABSENT_INPUTS || !may_lack_inputs(text))
    base->InferOutputShapeFn = adapter_infer_shapes;
}

const adapter_type *adapter_type_of(const adapter_op *op, const adapter_tensor *tensor) {
  return &adapter_types[op->types[tensor->element]];
}

/* ---- Statuses --------------------------------------------------------------------------------------------------- */

/* How many bytes the UTF-8 character at `text` has; 0 where there is none. */
static size_t character(const unsigned char *text) {
  size_t size = text[0] < 0x80   ? 1
                : text[0] < 0xc2 ? 0
                : text[0] < 0xe0 ? 2
                : text[0] < 0xf0 ? 3
                : text[0] < 0xf5 ? 4
                                 : 0;
  for (size_t i = 1; i < size; ++i)
    if ((text[i] & 0xc0) != 0x80)
      return 0;
  bool encodes_too_little = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
  bool is_no_character = (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f);
  return encodes_too_little || is_no_character ? 0 : size;
}

/* A kernel's message may be anything, and ONNX Runtime's Python reads UTF-8: other bytes become question marks. */
static void make_utf8(char *text) {
  while (*text != '\0') {
    size_t size = character((const unsigned char *)text);
    if (size == 0)
      *text = '?';
    text += size == 0 ? 1 : size;
  }
}

OrtStatus *adapter_error(const OrtApi *api, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *message = length < 0 ? NULL : malloc((size_t)length + 1);
  if (message == NULL)
    return ORT_CALL(api, CreateStatus)(code, "out of memory while an error was being described");
  va_start(arguments, format);
  vsnprintf(message, (size_t)length + 1, format, arguments);
  va_end(arguments);
  make_utf8(message);
  OrtStatus *status = ORT_CALL(api, CreateStatus)(code, message);
  free(message);
  return status;
}

static OrtStatus *out_of_memory(const OrtApi *api) {
  return adapter_error(api, ORT_FAIL, "%s: out of memory", adapter_library_name);
}

bool adapter_ok(const OrtApi *api, OrtStatus *status) {
  if (status == NULL)
    return true;
  ORT_CALL(api, ReleaseStatus)(status);
  return false;
}
