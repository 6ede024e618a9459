/* compute.c: one node at work. A kernel object is read-only after creation, so that any number of runs may share it.
 * C11. */
#define _DEFAULT_SOURCE /* sysconf */
#include "adapter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECES_A_PROCESSOR 4

/* The descriptions of a call's tensors. They live on the stack unless a node has more of them than this. */
#define FRAME_ARGUMENTS 16
#define FRAME_TENSORS 16
#define FRAME_DIMS 32
typedef struct frame {
  oneop_argument arguments[FRAME_ARGUMENTS];
  oneop_tensor tensors[FRAME_TENSORS];
  int64_t dims[FRAME_DIMS];
  int64_t sizes[FRAME_TENSORS * ONEOP_MAX_NDIM];
  bool waiting[FRAME_ARGUMENTS];
} frame;

/* One run. `base` is first: the kernel's context is this. */
typedef struct run {
  oneop_context base;
  const adapter_kernel *kernel;
  OrtKernelContext *ort;
  oneop_argument *inputs, *outputs;
  bool *waiting;     /* one an output: it has no memory before the kernel calls resize */
  int32_t n_waiting; /* how many were at the start */
  void *scratch;     /* a list of blocks: each begins with a pointer to the next, and memory of a GPU's or NULL */
  const OrtMemoryInfo *memory; /* of the GPU that the tensors are on; NULL on the CPU */
  atomic_flag failed;
  char *message;
} run;

/* ---- Creation --------------------------------------------------------------------------------------------------- */

static OrtStatus *count_tensors(adapter_kernel *kernel, const OrtKernelInfo *info, const char *node);
static OrtStatus *no_kernel(const adapter_op *op, const char *node);
static char *node_name(const OrtApi *api, const OrtKernelInfo *info);
static OrtStatus *prepare_tensors(adapter_kernel *kernel);
static void measure_frame(adapter_kernel *kernel);

OrtStatus *adapter_create(const OrtCustomOp *base, const OrtApi *unused, const OrtKernelInfo *info, void **out) {
  (void)unused; /* the table of `base->version`; ours may know more */
  const adapter_op *op = (const adapter_op *)base;
  *out = NULL;
  char *node = node_name(op->api, info);
  adapter_kernel *kernel = calloc(1, sizeof *kernel);
  OrtStatus *status = NULL;
  if (node == NULL || kernel == NULL) {
    status = adapter_error(op->api, ORT_FAIL, "%s: out of memory", op->text->name);
  } else {
    kernel->api = op->api;
    kernel->op = op;
    status = op->run == NULL ? no_kernel(op, node) : count_tensors(kernel, info, node);
    if (status == NULL)
      status = adapter_read_attributes(kernel, info, node);
    if (status == NULL)
      status = adapter_check_shapes(kernel, info);
    if (status == NULL)
      status = prepare_tensors(kernel);
  }
  free(node);
  if (status != NULL) {
    adapter_destroy(kernel);
    return status;
  }
  measure_frame(kernel);
  *out = kernel;
  return NULL;
}

void adapter_destroy(void *opaque) {
  adapter_kernel *kernel = opaque;
  if (kernel == NULL)
    return;
  for (void *block = kernel->memory; block != NULL;) {
    void *next = *(void **)block;
    free(block);
    block = next;
  }
  free(kernel->attributes);
  free(kernel->tensors);
  free(kernel);
}

static char *node_name(const OrtApi *api, const OrtKernelInfo *info) {
  size_t size = 0;
  char *name = NULL;
  if (adapter_ok(api, ORT_CALL(api, KernelInfo_GetNodeName)(info, NULL, &size)) && size > 0)
    name = calloc(size, 1);
  if (name != NULL && !adapter_ok(api, ORT_CALL(api, KernelInfo_GetNodeName)(info, name, &size)))
    name[0] = '\0';
  return name != NULL ? name : calloc(1, 1);
}

static OrtStatus *no_kernel(const adapter_op *op, const char *node) {
  char wanted[256] = "";
  size_t used = 0;
  bool on_gpu = adapter_find_kernel(op->entry, op->text, op->types, ADAPTER_CUDA) != NULL;
  for (int32_t i = 0; i < op->text->n_elements; ++i) {
    const char *name = adapter_types[op->types[i]].name;
    if (op->text->elements[i].n_types == 1)
      continue; /* a fixed dtype is not why */
    if (used + strlen(name) + 3 > sizeof wanted)
      break;
    if (used > 0) {
      memcpy(wanted + used, ", ", 2);
      used += 2;
    }
    memcpy(wanted + used, name, strlen(name) + 1);
    used += strlen(name);
  }
  if (on_gpu)
    return adapter_error(
        op->api, ORT_NOT_IMPLEMENTED,
        "%s: node `%s` runs on the CPU here, and %s holds a kernel for CUDA only. Make the session with "
        "CUDAExecutionProvider, add a C or C++ kernel and build the library again, or make the session "
        "without it: the model then runs the function it carries.",
        op->text->name, node, adapter_library_name);
  return adapter_error(op->api, ORT_NOT_IMPLEMENTED,
                       "%s: node `%s` has %s inputs, and %s holds no kernel for that. Add the dtype to the operator's "
                       "`dtypes` and build the library again, or make the session without it: the model then runs the "
                       "function it carries.",
                       op->text->name, node, wanted, adapter_library_name);
}

/* A variadic input takes what is left of the node's inputs; a gradient's output may mirror it. */
static OrtStatus *count_tensors(adapter_kernel *kernel, const OrtKernelInfo *info, const char *node) {
  const OrtApi *api = kernel->api;
  const adapter_operator *text = kernel->op->text;
  size_t inputs = 0, outputs = 0;
  OrtStatus *status = ORT_CALL(api, KernelInfo_GetInputCount)(info, &inputs);
  if (status == NULL)
    status = ORT_CALL(api, KernelInfo_GetOutputCount)(info, &outputs);
  if (status != NULL)
    return status;
  kernel->n_node_inputs = (int32_t)inputs;
  kernel->n_node_outputs = (int32_t)outputs;
  int32_t variadic = 1;
  kernel->n_input_tensors = text->n_inputs;
  if (text->n_inputs > 0 && text->inputs[text->n_inputs - 1].arity == ORT_VARIADIC) {
    variadic = (int32_t)inputs - (text->n_inputs - 1);
    if (variadic < 1)
      return adapter_error(api, ORT_INVALID_ARGUMENT, "%s: node `%s` has %d inputs; `%s` needs one tensor or more.",
                           text->name, node, (int)inputs, text->inputs[text->n_inputs - 1].name);
    kernel->n_input_tensors += variadic - 1;
  }
  kernel->n_output_tensors = text->n_outputs;
  if (text->n_outputs > 0 && text->outputs[text->n_outputs - 1].arity == ORT_VARIADIC)
    kernel->n_output_tensors += variadic - 1;
  return NULL;
}

static size_t frame_tensors(const adapter_kernel *kernel) {
  return (size_t)kernel->n_input_tensors + (size_t)kernel->n_output_tensors;
}

static size_t frame_arguments(const adapter_kernel *kernel) {
  return (size_t)kernel->op->text->n_inputs + (size_t)kernel->op->text->n_outputs;
}

/* What is the same in every run of a tensor's description. */
static OrtStatus *prepare_tensors(adapter_kernel *kernel) {
  const adapter_operator *text = kernel->op->text;
  kernel->tensors = calloc(frame_tensors(kernel) + 1, sizeof *kernel->tensors);
  if (kernel->tensors == NULL)
    return adapter_error(kernel->api, ORT_FAIL, "%s: out of memory", text->name);
  for (int32_t i = 0; i < kernel->n_input_tensors; ++i) {
    const adapter_tensor *input = &text->inputs[i < text->n_inputs ? i : text->n_inputs - 1];
    kernel->tensors[i] =
        (oneop_tensor){.device = {kernel->op->device, 0}, .dtype = adapter_type_of(kernel->op, input)->dtype};
  }
  for (int32_t i = 0; i < kernel->n_output_tensors; ++i) {
    const adapter_tensor *output = &text->outputs[i < text->n_outputs ? i : text->n_outputs - 1];
    kernel->tensors[kernel->n_input_tensors + i] =
        (oneop_tensor){.device = {kernel->op->device, 0}, .dtype = adapter_type_of(kernel->op, output)->dtype};
  }
  return NULL;
}

static void measure_frame(adapter_kernel *kernel) {
  size_t arguments = frame_arguments(kernel), tensors = frame_tensors(kernel), dims = (size_t)kernel->op->entry->n_dims;
  if (arguments > FRAME_ARGUMENTS || tensors > FRAME_TENSORS || dims > FRAME_DIMS)
    kernel->frame_size = arguments * (sizeof(oneop_argument) + sizeof(bool)) + dims * sizeof(int64_t) +
                         tensors * (sizeof(oneop_tensor) + ONEOP_MAX_NDIM * sizeof(int64_t));
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  kernel->max_pieces = PIECES_A_PROCESSOR * (processors > 0 && processors < 4096 ? (int32_t)processors : 1);
}

/* ---- A run ------------------------------------------------------------------------------------------------------ */

static OrtStatus *find_device(run *self, oneop_tensor *tensors);
static void release_scratch(run *self);
static OrtStatus *describe_inputs(run *self, oneop_tensor *tensors, int64_t *sizes);
static OrtStatus *describe_input(run *self, const OrtValue *value, oneop_tensor *tensor, int64_t *sizes);
static void describe_outputs(run *self, oneop_tensor *tensors, int64_t *sizes);
static OrtStatus *allocate_outputs(run *self);
static bool allocate_output(run *self, int32_t output, int64_t element);
static OrtStatus *check_outputs(run *self);
static OrtStatus *failure(run *self);
static void parallel_for(oneop_context *context, int64_t begin, int64_t end, int64_t grain,
                         void (*body)(void *, int64_t, int64_t), void *data);
static void *scratch(oneop_context *context, size_t bytes);
static oneop_tensor *resize(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim);
static void fail(oneop_context *context, const char *message);

OrtStatus *adapter_compute(void *opaque, OrtKernelContext *ort) {
  const adapter_kernel *kernel = opaque;
  const oneop_operator *entry = kernel->op->entry;
  run self = {
      .base = {parallel_for, scratch, resize, fail, NULL}, .kernel = kernel, .ort = ort, .failed = ATOMIC_FLAG_INIT};

  frame small;
  oneop_tensor *tensors = small.tensors;
  int64_t *dims = small.dims, *sizes = small.sizes;
  self.inputs = small.arguments;
  self.waiting = small.waiting;
  void *large = kernel->frame_size > 0 ? malloc(kernel->frame_size) : NULL;
  if (large != NULL) {
    self.inputs = large;
    tensors = (oneop_tensor *)(void *)(self.inputs + frame_arguments(kernel));
    dims = (int64_t *)(void *)(tensors + frame_tensors(kernel));
    sizes = dims + entry->n_dims;
    self.waiting = (bool *)(void *)(sizes + frame_tensors(kernel) * ONEOP_MAX_NDIM);
  } else if (kernel->frame_size > 0) {
    return adapter_error(kernel->api, ORT_FAIL, "%s: out of memory", kernel->op->text->name);
  }
  self.outputs = self.inputs + kernel->op->text->n_inputs;
  const oneop_call call = {self.inputs, self.outputs, kernel->attributes, dims, &self.base};

  memcpy(tensors, kernel->tensors, frame_tensors(kernel) * sizeof *tensors);
  OrtStatus *status = describe_inputs(&self, tensors, sizes);
  if (status == NULL && kernel->op->device != ADAPTER_CPU)
    status = find_device(&self, tensors);
  if (status == NULL) {
    describe_outputs(&self, tensors + kernel->n_input_tensors,
                     sizes + (size_t)kernel->n_input_tensors * ONEOP_MAX_NDIM);
    if (entry->shapes(&call) != 0)
      status = failure(&self);
  }
  if (status == NULL)
    status = allocate_outputs(&self);
  if (status == NULL && (kernel->op->run(&call) != 0 || self.message != NULL))
    status = failure(&self);
  if (status == NULL && self.n_waiting > 0)
    status = check_outputs(&self);

  if (self.scratch != NULL)
    release_scratch(&self);
  if (self.message != NULL)
    free(self.message);
  if (large != NULL)
    free(large);
  return status;
}

/* Which GPU the tensors are on, and the stream that the runtime puts its own work on. */
static OrtStatus *find_device(run *self, oneop_tensor *tensors) {
  const adapter_kernel *kernel = self->kernel;
  int id = 0;
  OrtStatus *status = ORT_CALL(kernel->api, KernelContext_GetGPUComputeStream)(self->ort, &self->base.stream);
  for (int32_t i = 0; status == NULL && self->memory == NULL && i < kernel->n_node_inputs; ++i) {
    const OrtValue *value = NULL;
    status = ORT_CALL(kernel->api, KernelContext_GetInput)(self->ort, (size_t)i, &value);
    if (status == NULL && value != NULL)
      status = ORT_CALL(kernel->api, GetTensorMemoryInfo)(value, &self->memory);
  }
  if (status == NULL && self->memory != NULL)
    status = ORT_CALL(kernel->api, MemoryInfoGetId)(self->memory, &id);
  for (size_t i = 0; i < frame_tensors(kernel); ++i)
    tensors[i].device.id = id;
  return status;
}

static OrtStatus *failure(run *self) {
  const char *message = self->message != NULL ? self->message : "failed and gave no message";
  const char *name = self->kernel->op->text->name;
  bool named = strncmp(message, name, strlen(name)) == 0;
  return adapter_error(self->kernel->api, ORT_FAIL, "%s%s%s", named ? "" : name, named ? "" : ": ", message);
}

static OrtStatus *describe_inputs(run *self, oneop_tensor *tensors, int64_t *sizes) {
  const adapter_kernel *kernel = self->kernel;
  const adapter_operator *text = kernel->op->text;
  int32_t index = 0;
  for (int32_t i = 0; i < text->n_inputs; ++i) {
    const adapter_tensor *input = &text->inputs[i];
    int32_t count = input->arity == ORT_VARIADIC ? kernel->n_node_inputs - i : 1;
    self->inputs[i].tensors = tensors;
    self->inputs[i].count = 0;
    for (int32_t j = 0; j < count; ++j, ++index, ++tensors, sizes += ONEOP_MAX_NDIM) {
      const OrtValue *value = NULL;
      if (index < kernel->n_node_inputs) {
        OrtStatus *status = ORT_CALL(kernel->api, KernelContext_GetInput)(self->ort, (size_t)index, &value);
        if (status != NULL)
          return status;
      }
      if (value == NULL) {
        if (input->arity == ORT_OPTIONAL)
          continue;
        return adapter_error(kernel->api, ORT_INVALID_ARGUMENT,
                             "%s: input `%s` is absent, and it is not optional. Connect it.", text->name, input->name);
      }
      OrtStatus *status = describe_input(self, value, tensors, sizes);
      if (status != NULL)
        return status;
      ++self->inputs[i].count;
    }
  }
  return NULL;
}

static OrtStatus *read_sizes(const adapter_kernel *kernel, const OrtValue *value, int64_t *sizes, size_t *ndim);

static OrtStatus *describe_input(run *self, const OrtValue *value, oneop_tensor *tensor, int64_t *sizes) {
  const OrtApi *api = self->kernel->api;
  size_t ndim = 0;
  tensor->shape = sizes;
  OrtStatus *status = NULL;
  if (self->kernel->op->version >= ORT_API_VERSION_SHAPE_REFERENCE) {
    const int64_t *reference = NULL;
    int element = 0;
    status = ORT_CALL(api, GetTensorElementTypeAndShapeDataReference)(value, &element, &reference, &ndim);
    if (ndim > 0)
      tensor->shape = (int64_t *)(uintptr_t)reference; /* of the runtime; nobody writes to an input's shape */
  } else {
    status = read_sizes(self->kernel, value, sizes, &ndim);
  }
  if (status != NULL)
    return status;
  if (ndim > ONEOP_MAX_NDIM)
    return adapter_error(api, ORT_INVALID_ARGUMENT, "%s: an input has %zu dimensions; at most %d are supported.",
                         self->kernel->op->text->name, ndim, ONEOP_MAX_NDIM);
  tensor->ndim = (int32_t)ndim;
  return ORT_CALL(api, GetTensorMutableData)((OrtValue *)(uintptr_t)value, &tensor->data);
}

static OrtStatus *read_sizes(const adapter_kernel *kernel, const OrtValue *value, int64_t *sizes, size_t *ndim) {
  const OrtApi *api = kernel->api;
  OrtTensorTypeAndShapeInfo *info = NULL;
  OrtStatus *status = ORT_CALL(api, GetTensorTypeAndShape)(value, &info);
  if (status == NULL)
    status = ORT_CALL(api, GetDimensionsCount)(info, ndim);
  if (status == NULL && *ndim <= ONEOP_MAX_NDIM)
    status = ORT_CALL(api, GetDimensions)(info, sizes, *ndim);
  if (info != NULL)
    ORT_CALL(api, ReleaseTensorTypeAndShapeInfo)(info);
  return status;
}

static void describe_outputs(run *self, oneop_tensor *tensors, int64_t *sizes) {
  const adapter_operator *text = self->kernel->op->text;
  for (int32_t i = 0; i < text->n_outputs; ++i) {
    const adapter_tensor *output = &text->outputs[i];
    oneop_argument *argument = &self->outputs[i];
    argument->tensors = tensors;
    argument->count = output->arity == ORT_VARIADIC ? self->inputs[output->mirrors].count : 1;
    for (int64_t j = 0; j < argument->count; ++j, ++tensors, sizes += ONEOP_MAX_NDIM)
      tensors->shape = sizes;
  }
}

/* ---- Outputs ---------------------------------------------------------------------------------------------------- */

static bool is_known(const oneop_tensor *tensor) {
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] == ONEOP_UNKNOWN)
      return false;
  return true;
}

static OrtStatus *allocate_outputs(run *self) {
  const adapter_operator *text = self->kernel->op->text;
  for (int32_t i = 0; i < text->n_outputs; ++i) {
    self->waiting[i] = false;
    for (int64_t j = 0; j < self->outputs[i].count; ++j) {
      oneop_tensor *tensor = &self->outputs[i].tensors[j];
      if (!is_known(tensor)) {
        self->waiting[i] = true;
        ++self->n_waiting;
      } else if (!allocate_output(self, i, j)) {
        return failure(self);
      }
    }
  }
  return NULL;
}

static void *unused_output(run *self, const oneop_tensor *tensor);

/* Output tensors are counted through in order: the elements of a variadic output stand at the end. */
static bool allocate_output(run *self, int32_t output, int64_t element) {
  const adapter_kernel *kernel = self->kernel;
  oneop_tensor *tensor = &self->outputs[output].tensors[element];
  size_t index = (size_t)output + (size_t)element;
  OrtValue *value = NULL;
  OrtStatus *status = NULL;
  if (index < (size_t)kernel->n_node_outputs)
    status =
        ORT_CALL(kernel->api, KernelContext_GetOutput)(self->ort, index, tensor->shape, (size_t)tensor->ndim, &value);
  if (status == NULL && value != NULL)
    status = ORT_CALL(kernel->api, GetTensorMutableData)(value, &tensor->data);
  if (status != NULL) {
    fail(&self->base, ORT_CALL(kernel->api, GetErrorMessage)(status));
    ORT_CALL(kernel->api, ReleaseStatus)(status);
    return false;
  }
  self->waiting[output] = false;
  if (value != NULL)
    return true;
  tensor->data = unused_output(self, tensor);
  return tensor->data != NULL;
}

/* The model does not use this output; the kernel writes it all the same. */
static void *unused_output(run *self, const oneop_tensor *tensor) {
  size_t bytes = (size_t)(tensor->dtype.bits / 8);
  for (int32_t d = 0; d < tensor->ndim; ++d) {
    size_t size = (size_t)tensor->shape[d];
    if (size != 0 && bytes > SIZE_MAX / 2 / size)
      bytes = SIZE_MAX / 2; /* more than there is: scratch says so */
    else
      bytes *= size;
  }
  return scratch(&self->base, bytes);
}

static OrtStatus *check_outputs(run *self) {
  const adapter_operator *text = self->kernel->op->text;
  for (int32_t i = 0; i < text->n_outputs; ++i)
    if (self->waiting[i])
      return adapter_error(self->kernel->api, ORT_FAIL,
                           "%s: the kernel returned without a size for output `%s`. Call `resize` for it.", text->name,
                           text->outputs[i].name);
  return NULL;
}

/* ---- What the kernel may ask for -------------------------------------------------------------------------------- */

static void fail(oneop_context *context, const char *message) {
  run *self = (run *)context;
  if (atomic_flag_test_and_set(&self->failed))
    return;
  size_t size = strlen(message) + 1;
  char *copy = malloc(size);
  if (copy != NULL)
    memcpy(copy, message, size);
  self->message = copy;
}

static void *device_scratch(run *self, size_t bytes);

static void *scratch(oneop_context *context, size_t bytes) {
  enum { alignment = 64 };
  run *self = (run *)context;
  char *block = NULL;
  if (self->memory != NULL)
    return device_scratch(self, bytes);
  if (bytes <= SIZE_MAX - 2 * (size_t)alignment)
    block = aligned_alloc(alignment, (bytes + 2 * (size_t)alignment - 1) / alignment * alignment);
  if (block == NULL) {
    fail(context, "out of memory (scratch)");
    return NULL;
  }
  *(void **)(void *)block = self->scratch;
  self->scratch = block;
  return block + alignment;
}

/* From the provider's allocator, which knows what the stream still works on. */
static void *device_scratch(run *self, size_t bytes) {
  const OrtApi *api = self->kernel->api;
  void **block = malloc(2 * sizeof *block), *memory = NULL;
  OrtStatus *status = block == NULL ? NULL
                                    : ORT_CALL(api, KernelContext_GetScratchBuffer)(self->ort, self->memory,
                                                                                    bytes ? bytes : 1, &memory);
  if (status != NULL) {
    fail(&self->base, ORT_CALL(api, GetErrorMessage)(status));
    ORT_CALL(api, ReleaseStatus)(status);
  } else if (memory == NULL) {
    fail(&self->base, "out of memory (scratch)");
  }
  if (memory == NULL) {
    free(block);
    return NULL;
  }
  block[0] = self->scratch;
  block[1] = memory;
  self->scratch = block;
  return memory;
}

static void release_scratch(run *self) {
  const OrtApi *api = self->kernel->api;
  OrtAllocator *allocator = NULL;
  OrtStatus *status =
      self->memory == NULL ? NULL : ORT_CALL(api, KernelContext_GetAllocator)(self->ort, self->memory, &allocator);
  adapter_ok(api, status);
  for (void **block = self->scratch; block != NULL;) {
    void **next = block[0];
    if (allocator != NULL)
      adapter_ok(api, ORT_CALL(api, AllocatorFree)(allocator, block[1]));
    free(block);
    block = next;
  }
  if (allocator != NULL)
    ORT_CALL(api, ReleaseAllocator)(allocator);
}

/* As Python writes a tuple, as far as there is room. */
static void shape_text(char *text, size_t room, const int64_t *sizes, int32_t ndim) {
  size_t used = (size_t)snprintf(text, room, "(");
  for (int32_t d = 0; d < ndim && used < room; ++d)
    used += (size_t)snprintf(text + used, room - used, "%s%lld", d > 0 ? ", " : "", (long long)sizes[d]);
  if (used < room)
    snprintf(text + used, room - used, ndim == 1 ? ",)" : ")");
}

/* After the first resize, the sizes are known: another one says so. */
static void refuse_sizes(run *self, int32_t output, const int64_t *sizes, int32_t ndim) {
  const oneop_tensor *tensor = self->outputs[output].tensors;
  const char *name = self->kernel->op->text->outputs[output].name;
  char given[512], present[512], message[1536];
  shape_text(given, sizeof given, sizes, ndim);
  shape_text(present, sizeof present, tensor->shape, tensor->ndim);
  if (is_known(tensor))
    snprintf(message, sizeof message, "the kernel resized output `%s` to %s and then to %s. Resize an output once.",
             name, present, given);
  else
    snprintf(message, sizeof message,
             "the kernel resized output `%s` to %s, which does not fit its definition. Resize it to sizes that fit.",
             name, given);
  fail(&self->base, message);
}

static oneop_tensor *resize(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim) {
  run *self = (run *)context;
  const adapter_operator *text = self->kernel->op->text;
  if (output < 0 || output >= text->n_outputs || self->outputs[output].count != 1) {
    fail(context, "the kernel resized an output that does not exist. Count outputs from 0, in the definition's order.");
    return NULL;
  }
  oneop_tensor *tensor = self->outputs[output].tensors;
  bool fits = ndim == tensor->ndim;
  for (int32_t d = 0; fits && d < ndim; ++d)
    fits = sizes[d] >= 0 && (tensor->shape[d] == sizes[d] || tensor->shape[d] == ONEOP_UNKNOWN);
  if (!fits) {
    refuse_sizes(self, output, sizes, ndim);
    return NULL;
  }
  if (!self->waiting[output])
    return tensor;
  memcpy(tensor->shape, sizes, (size_t)ndim * sizeof *sizes);
  return allocate_output(self, output, 0) ? tensor : NULL;
}

/* ---- parallel_for ----------------------------------------------------------------------------------------------- */

typedef struct pieces {
  void (*body)(void *, int64_t, int64_t);
  void *data;
  int64_t begin, end, size;
} pieces;

/* A loop inside a loop's body runs where it is: the outer one has already shared out the threads. */
static _Thread_local int inside_loop;

static void run_piece(void *opaque, size_t index) {
  const pieces *all = opaque;
  int64_t begin = all->begin + (int64_t)index * all->size;
  int64_t end = all->end - begin < all->size ? all->end : begin + all->size;
  ++inside_loop;
  all->body(all->data, begin, end);
  --inside_loop;
}

static void parallel_for(oneop_context *context, int64_t begin, int64_t end, int64_t grain,
                         void (*body)(void *, int64_t, int64_t), void *data) {
  run *self = (run *)context;
  if (begin >= end)
    return;
  int64_t length = end - begin;
  int64_t count = length / (grain > 1 ? grain : 1);
  if (count > self->kernel->max_pieces)
    count = self->kernel->max_pieces;
  if (count <= 1 || inside_loop > 0) {
    body(data, begin, end);
    return;
  }
  pieces all = {body, data, begin, end, (length + count - 1) / count};
  count = (length + all.size - 1) / all.size;
  OrtStatus *status =
      ORT_CALL(self->kernel->api, KernelContext_ParallelFor)(self->ort, run_piece, (size_t)count, 0, &all);
  if (status != NULL) {
    fail(context, ORT_CALL(self->kernel->api, GetErrorMessage)(status));
    ORT_CALL(self->kernel->api, ReleaseStatus)(status);
  }
}
