/* attributes.c: reads a node's attributes, once, when its kernel is created. C11.
 *
 * ONNX Runtime does not say whether an attribute is absent or of another kind: each getter fails in both cases, and
 * those of lists give an empty list for any attribute that exists. Hence the questions in this order: does anything
 * exist under that name, then what. Integers are taken where the definition says float: exporters write 2 for 2.0.
 */
#include "adapter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
  adapter_kernel *kernel;
  const OrtApi *api;
  const OrtKernelInfo *info;
  const adapter_attribute *text;
  const char *node;
} reader;

typedef enum answer { FOUND, WRONG_KIND, NO_MEMORY, AMBIGUOUS } answer;

static OrtStatus *read_attribute(const reader *self, oneop_attribute *out);
static bool exists(const reader *self);
static answer read_value(const reader *self, oneop_attribute *out);
static OrtStatus *check_choices(const reader *self, const oneop_attribute *value);
static void *keep(adapter_kernel *kernel, size_t bytes);

OrtStatus *adapter_read_attributes(adapter_kernel *kernel, const OrtKernelInfo *info, const char *node) {
  const adapter_operator *text = kernel->op->text;
  kernel->attributes = calloc((size_t)text->n_attributes + 1, sizeof *kernel->attributes);
  if (kernel->attributes == NULL)
    return adapter_error(kernel->api, ORT_FAIL, "%s: out of memory", text->name);
  for (int32_t i = 0; i < text->n_attributes; ++i) {
    const reader self = {kernel, kernel->api, info, &text->attributes[i], node};
    OrtStatus *status = read_attribute(&self, &kernel->attributes[i]);
    if (status != NULL)
      return status;
  }
  return NULL;
}

static const char *const written[] = {"nothing", "FLOAT (or INT)",   "INT",  "INT",
                                      "STRING",  "FLOATS (or INTS)", "INTS", "STRINGS"};

static OrtStatus *read_attribute(const reader *self, oneop_attribute *out) {
  const char *op = self->kernel->op->text->name;
  if (!exists(self)) {
    if (self->text->required)
      return adapter_error(
          self->api, ORT_INVALID_ARGUMENT,
          "%s: node `%s` has no attribute `%s`, and the definition gives it no default. Write it on the "
          "node, as %s.",
          op, self->node, self->text->name, written[self->text->kind]);
    *out = self->text->value;
    return NULL;
  }
  out->kind = self->text->kind;
  switch (read_value(self, out)) {
  case FOUND:
    return check_choices(self, out);
  case NO_MEMORY:
    return adapter_error(self->api, ORT_FAIL, "%s: out of memory", op);
  case AMBIGUOUS:
    return adapter_error(
        self->api, ORT_NOT_IMPLEMENTED,
        "%s: node `%s`: this ONNX Runtime cannot tell which value the list of strings `%s` has on which "
        "node, once a process has met several. Install onnxruntime 1.25 or newer.",
        op, self->node, self->text->name);
  case WRONG_KIND:
    break;
  }
  return adapter_error(self->api, ORT_INVALID_ARGUMENT,
                       "%s: attribute `%s` of node `%s` has the wrong kind. Write it as %s.", op, self->text->name,
                       self->node, written[self->text->kind]);
}

/* ---- What ONNX Runtime has to say about one name ---------------------------------------------------------------- */

static bool has_float(const reader *self, float *out) {
  return adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttribute_float)(self->info, self->text->name, out));
}

static bool has_int(const reader *self, int64_t *out) {
  return adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttribute_int64)(self->info, self->text->name, out));
}

static bool has_string(const reader *self, size_t *size) {
  *size = 0;
  return adapter_ok(self->api,
                    ORT_CALL(self->api, KernelInfoGetAttribute_string)(self->info, self->text->name, NULL, size));
}

static bool has_floats(const reader *self, size_t *size) {
  *size = 0;
  return adapter_ok(self->api,
                    ORT_CALL(self->api, KernelInfoGetAttributeArray_float)(self->info, self->text->name, NULL, size));
}

static bool has_ints(const reader *self, size_t *size) {
  *size = 0;
  return adapter_ok(self->api,
                    ORT_CALL(self->api, KernelInfoGetAttributeArray_int64)(self->info, self->text->name, NULL, size));
}

static bool has_scalar(const reader *self) {
  float f = 0;
  int64_t i = 0;
  size_t size = 0;
  return has_float(self, &f) || has_int(self, &i) || has_string(self, &size);
}

static bool exists(const reader *self) {
  size_t size = 0;
  return has_ints(self, &size) || has_floats(self, &size) || has_scalar(self);
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

static answer read_string(const reader *self, oneop_string *out);
static answer read_floats(const reader *self, oneop_floats *out);
static answer read_ints(const reader *self, oneop_ints *out);
static answer read_strings(const reader *self, oneop_strings *out);

static answer read_value(const reader *self, oneop_attribute *out) {
  float f = 0;
  int64_t i = 0;
  switch (self->text->kind) {
  case ONEOP_FLOAT:
    if (has_float(self, &f))
      out->value.f = (double)f;
    else if (has_int(self, &i))
      out->value.f = (double)i;
    else
      return WRONG_KIND;
    return FOUND;
  case ONEOP_INT:
  case ONEOP_BOOL:
    if (!has_int(self, &i))
      return WRONG_KIND;
    out->value.i = self->text->kind == ONEOP_BOOL ? i != 0 : i;
    return FOUND;
  case ONEOP_STRING:
    return read_string(self, &out->value.s);
  case ONEOP_FLOATS:
    return read_floats(self, &out->value.fs);
  case ONEOP_INTS:
    return read_ints(self, &out->value.is);
  default:
    return read_strings(self, &out->value.ss);
  }
}

static answer read_string(const reader *self, oneop_string *out) {
  size_t size = 0;
  if (!has_string(self, &size))
    return WRONG_KIND;
  char *text = keep(self->kernel, size);
  if (text == NULL)
    return NO_MEMORY;
  if (!adapter_ok(self->api,
                  ORT_CALL(self->api, KernelInfoGetAttribute_string)(self->info, self->text->name, text, &size)))
    return WRONG_KIND;
  *out = (oneop_string){text, (int64_t)size - 1}; /* without the zero at the end */
  return FOUND;
}

static answer read_floats(const reader *self, oneop_floats *out) {
  size_t count = 0, integers = 0;
  has_floats(self, &count);
  has_ints(self, &integers);
  if (count == 0 && (integers == 0 && has_scalar(self)))
    return WRONG_KIND;
  size_t total = count > 0 ? count : integers;
  double *values = keep(self->kernel, total * sizeof *values);
  void *raw = keep(self->kernel, total * sizeof(int64_t));
  if (values == NULL || raw == NULL)
    return NO_MEMORY;
  if (count > 0) {
    float *source = raw;
    if (!adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttributeArray_float)(self->info, self->text->name,
                                                                                      source, &count)))
      return WRONG_KIND;
    for (size_t i = 0; i < total; ++i)
      values[i] = (double)source[i];
  } else if (integers > 0) {
    int64_t *source = raw;
    if (!adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttributeArray_int64)(self->info, self->text->name,
                                                                                      source, &integers)))
      return WRONG_KIND;
    for (size_t i = 0; i < total; ++i)
      values[i] = (double)source[i];
  }
  *out = (oneop_floats){values, (int64_t)total};
  return FOUND;
}

static answer read_ints(const reader *self, oneop_ints *out) {
  size_t count = 0, floats = 0;
  has_ints(self, &count);
  has_floats(self, &floats);
  if (count == 0 && (floats > 0 || has_scalar(self)))
    return WRONG_KIND;
  int64_t *values = keep(self->kernel, count * sizeof *values);
  if (values == NULL)
    return NO_MEMORY;
  if (count > 0 && !adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttributeArray_int64)(
                                              self->info, self->text->name, values, &count)))
    return WRONG_KIND;
  *out = (oneop_ints){values, (int64_t)count};
  return FOUND;
}

static answer noted_strings(const reader *self, oneop_strings *out);
static answer copy_strings(const reader *self, char **source, size_t count, oneop_strings *out);

static answer read_strings(const reader *self, oneop_strings *out) {
  size_t count = 0;
  if ((has_ints(self, &count) && count > 0) || (has_floats(self, &count) && count > 0) || has_scalar(self))
    return WRONG_KIND;
  if (self->kernel->op->version < ORT_API_VERSION_STRINGS)
    return noted_strings(self, out);
  OrtAllocator *allocator = NULL;
  char **strings = NULL;
  count = 0;
  if (!adapter_ok(self->api, ORT_CALL(self->api, GetAllocatorWithDefaultOptions)(&allocator)) ||
      !adapter_ok(self->api, ORT_CALL(self->api, KernelInfoGetAttributeArray_string)(self->info, self->text->name,
                                                                                     allocator, &strings, &count)))
    return WRONG_KIND;
  answer result = copy_strings(self, strings, count, out);
  for (size_t i = 0; i < count; ++i)
    adapter_ok(self->api, ORT_CALL(self->api, AllocatorFree)(allocator, strings[i]));
  if (strings != NULL)
    adapter_ok(self->api, ORT_CALL(self->api, AllocatorFree)(allocator, strings));
  return result;
}

static answer copy_strings(const reader *self, char **source, size_t count, oneop_strings *out) {
  oneop_string *items = keep(self->kernel, count * sizeof *items);
  if (items == NULL)
    return NO_MEMORY;
  for (size_t i = 0; i < count; ++i) {
    size_t size = strlen(source[i]);
    char *text = keep(self->kernel, size);
    if (text == NULL)
      return NO_MEMORY;
    memcpy(text, source[i], size);
    items[i] = (oneop_string){text, (int64_t)size};
  }
  *out = (oneop_strings){items, (int64_t)count};
  return FOUND;
}

/* Memory that lives as long as the kernel. */
static void *keep(adapter_kernel *kernel, size_t bytes) {
  enum { header = 16 };
  char *block = malloc(bytes + header);
  if (block == NULL)
    return NULL;
  *(void **)(void *)block = kernel->memory;
  kernel->memory = block;
  return block + header;
}

/* ---- Choices ---------------------------------------------------------------------------------------------------- */

static bool same_value(const oneop_attribute *a, const oneop_attribute *b) {
  if (a->kind == ONEOP_STRING)
    return a->value.s.size == b->value.s.size && memcmp(a->value.s.data, b->value.s.data, (size_t)a->value.s.size) == 0;
  if (a->kind == ONEOP_FLOAT)
    return a->value.f == b->value.f;
  return a->value.i == b->value.i;
}

static void print_value(char *out, size_t size, const oneop_attribute *value) {
  if (value->kind == ONEOP_STRING)
    snprintf(out, size, "\"%.*s\"", (int)(value->value.s.size < 60 ? value->value.s.size : 60), value->value.s.data);
  else if (value->kind == ONEOP_FLOAT)
    snprintf(out, size, "%g", value->value.f);
  else
    snprintf(out, size, "%lld", (long long)value->value.i);
}

static OrtStatus *check_choices(const reader *self, const oneop_attribute *value) {
  const adapter_attribute *text = self->text;
  char given[80], choices[400] = "";
  size_t used = 0;
  for (int32_t i = 0; i < text->n_choices; ++i)
    if (same_value(value, &text->choices[i]))
      return NULL;
  if (text->n_choices == 0)
    return NULL;
  for (int32_t i = 0; i < text->n_choices && used + 84 < sizeof choices; ++i) {
    char choice[80];
    print_value(choice, sizeof choice, &text->choices[i]);
    used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%s", used > 0 ? ", " : "", choice);
  }
  print_value(given, sizeof given, value);
  return adapter_error(self->api, ORT_INVALID_ARGUMENT, "%s: attribute `%s` of node `%s` is %s; it must be one of %s.",
                       self->kernel->op->text->name, text->name, self->node, given, choices);
}

/* ---- Shape inference -------------------------------------------------------------------------------------------- */

static bool inferred(const adapter_op *op, const OrtShapeInferContext *context, const char *name,
                     const OrtOpAttr **out) {
  return adapter_ok(op->api, ORT_CALL(op->api, ShapeInferContext_GetAttribute)(context, name, out));
}

bool adapter_read_sizes(const adapter_op *op, const OrtShapeInferContext *context, oneop_attribute *attributes) {
  for (int32_t i = 0; i < op->text->n_attributes; ++i) {
    const adapter_attribute *text = &op->text->attributes[i];
    const OrtOpAttr *found = NULL;
    attributes[i] = text->value;
    if (text->kind != ONEOP_INT)
      continue; /* sizes depend on integers only */
    if (inferred(op, context, text->name, &found)) {
      size_t size = 0;
      attributes[i].kind = ONEOP_INT;
      if (!adapter_ok(op->api, ORT_CALL(op->api, ReadOpAttr)(found, ORT_OP_ATTR_INT, &attributes[i].value.i,
                                                             sizeof(int64_t), &size)))
        return false;
    } else if (text->required) {
      return false;
    }
  }
  return true;
}

/* Before 1.25 a kernel cannot ask for a list of strings, but shape inference, which every node meets before its kernel
 * is created, can. It does not say which node it is at. So the lists met so far are noted for each attribute: while
 * there is only one, it is the node's. A second one makes the answer ambiguous, and is reported. Notes are kept as long
 * as the library. */
typedef struct note {
  const adapter_attribute *text;
  bool ambiguous;
  size_t size; /* bytes: each string and a zero */
  char *strings;
  struct note *next;
} note;

static note *notes;
static atomic_flag noting = ATOMIC_FLAG_INIT;

static void lock_notes(void) {
  while (atomic_flag_test_and_set_explicit(&noting, memory_order_acquire)) {
  }
}

static void unlock_notes(void) { atomic_flag_clear_explicit(&noting, memory_order_release); }

static void add_note(const adapter_attribute *text, char *strings, size_t size) {
  lock_notes();
  note *found = notes;
  while (found != NULL && found->text != text)
    found = found->next;
  if (found != NULL) {
    found->ambiguous = found->ambiguous || found->size != size || memcmp(found->strings, strings, size) != 0;
  } else {
    found = calloc(1, sizeof *found);
    if (found != NULL) {
      *found = (note){text, false, size, strings, notes};
      notes = found;
      strings = NULL;
    }
  }
  unlock_notes();
  free(strings);
}

void adapter_note_strings(const adapter_op *op, const OrtShapeInferContext *context) {
  if (op->version >= ORT_API_VERSION_STRINGS)
    return;
  for (int32_t i = 0; i < op->text->n_attributes; ++i) {
    const adapter_attribute *text = &op->text->attributes[i];
    const OrtOpAttr *found = NULL;
    char none = '\0';
    size_t size = 0, used = 0;
    if (text->kind != ONEOP_STRINGS || !inferred(op, context, text->name, &found))
      continue;
    adapter_ok(op->api, ORT_CALL(op->api, ReadOpAttr)(found, ORT_OP_ATTR_STRINGS, &none, 0, &size)); /* asks the size */
    char *strings = malloc(size + 1);
    if (strings != NULL &&
        adapter_ok(op->api, ORT_CALL(op->api, ReadOpAttr)(found, ORT_OP_ATTR_STRINGS, strings, size, &used)))
      add_note(text, strings, size);
    else
      free(strings);
  }
}

static answer noted_strings(const reader *self, oneop_strings *out) {
  lock_notes();
  const note *found = notes;
  while (found != NULL && found->text != self->text)
    found = found->next;
  bool known = found != NULL && !found->ambiguous;
  size_t size = known ? found->size : 0, count = 0;
  char *copy = keep(self->kernel, size);
  if (known && copy != NULL)
    memcpy(copy, found->strings, size);
  unlock_notes();
  if (!known)
    return AMBIGUOUS;
  if (copy == NULL)
    return NO_MEMORY;
  for (size_t i = 0; i < size; ++i)
    count += copy[i] == '\0';
  oneop_string *items = keep(self->kernel, count * sizeof *items);
  if (items == NULL)
    return NO_MEMORY;
  const char *item = copy;
  for (size_t i = 0; i < count; ++i, item += strlen(item) + 1)
    items[i] = (oneop_string){item, (int64_t)strlen(item)};
  *out = (oneop_strings){items, (int64_t)count};
  return FOUND;
}
