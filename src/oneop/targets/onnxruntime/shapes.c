/* shapes.c: output shapes and the refusal of sizes that cannot fit, both when a model is loaded. C11.
 *
 * The sizes come from the operator's own `shapes`, which is told ONEOP_UNKNOWN for dimensions without a number. What
 * stays unknown gets a name: that of the input's dimension where the output has the same one ("batch"), an expression
 * of such names where it is computed ("2*batch+1"; equal expressions are equal sizes), or else a name nobody has used,
 * since ONNX Runtime takes equal names for equal sizes.
 *
 * Three facts about ONNX Runtime decide what is done here. It calls the shape inference of the first registration of a
 * name for all of them, so dtypes are taken from the node's inputs and not from the registration. It throws away the
 * status of shape inference, so wrong sizes are reported when the kernel is created, from the same arithmetic. And it
 * describes a tensor of unknown rank as one of rank 0, so rank 0 counts as unknown wherever the definition has
 * dimensions.
 */
#include "adapter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum presence { PRESENT, ABSENT, UNREADABLE } presence;

/* Where the inputs of a node are described: a shape context or a kernel's info. */
typedef struct source {
  size_t n_inputs;
  const OrtShapeInferContext *context;
  const OrtKernelInfo *info;
} source;

typedef struct inference {
  oneop_context base; /* first: what `shapes` calls fail on */
  const adapter_op *op;
  const oneop_attribute *attributes;
  oneop_argument *inputs, *outputs;
  oneop_tensor *tensors; /* of inputs, then of outputs */
  int64_t *sizes;        /* ONEOP_MAX_NDIM a tensor */
  const char **symbols;  /* likewise: "" where a dimension has no name */
  int *types;            /* of each dtype variable, as ONNX Runtime counts them; ORT_UNDEFINED until an input tells */
  int64_t *dims;
  char *message;
} inference;

static bool start(inference *self, const adapter_op *op, size_t n_inputs);
static void finish(inference *self);
static bool describe(inference *self, const source *from);
static bool compute(inference *self);
static void set_outputs(const inference *self, OrtShapeInferContext *context);

OrtStatus *adapter_infer_shapes(const OrtCustomOp *base, OrtShapeInferContext *context) {
  const adapter_op *op = (const adapter_op *)base;
  source from = {0, context, NULL};
  inference self;
  adapter_note_strings(op, context);
  oneop_attribute *attributes = calloc((size_t)op->text->n_attributes + 1, sizeof *attributes);
  if (attributes != NULL && adapter_read_sizes(op, context, attributes) &&
      adapter_ok(op->api, ORT_CALL(op->api, ShapeInferContext_GetInputCount)(context, &from.n_inputs))) {
    if (start(&self, op, from.n_inputs)) {
      self.attributes = attributes;
      if (describe(&self, &from) && compute(&self))
        set_outputs(&self, context);
    }
    finish(&self);
  }
  free(attributes);
  return NULL; /* a shape that cannot be told is no error */
}

OrtStatus *adapter_check_shapes(const adapter_kernel *kernel, const OrtKernelInfo *info) {
  const adapter_op *op = kernel->op;
  const source from = {(size_t)kernel->n_node_inputs, NULL, info};
  inference self;
  OrtStatus *status = NULL;
  if (!start(&self, op, from.n_inputs)) {
    status = adapter_error(op->api, ORT_FAIL, "%s: out of memory", op->text->name);
  } else {
    self.attributes = kernel->attributes;
    if (describe(&self, &from) && !compute(&self))
      status = adapter_error(op->api, ORT_INVALID_ARGUMENT, "%s",
                             self.message != NULL ? self.message : "its sizes do not fit its definition");
  }
  finish(&self);
  return status;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static void note_failure(oneop_context *context, const char *message) {
  inference *self = (inference *)context;
  if (self->message != NULL)
    return;
  size_t size = strlen(message) + 1;
  self->message = malloc(size);
  if (self->message != NULL)
    memcpy(self->message, message, size);
}

static bool start(inference *self, const adapter_op *op, size_t n_inputs) {
  const adapter_operator *text = op->text;
  size_t tensors = 2 * ((size_t)text->n_inputs + n_inputs) + (size_t)text->n_outputs; /* outputs may mirror inputs */
  *self = (inference){.base = {.fail = note_failure}, .op = op};
  self->inputs = calloc((size_t)text->n_inputs + (size_t)text->n_outputs + 1, sizeof *self->inputs);
  self->tensors = calloc(tensors + 1, sizeof *self->tensors);
  self->sizes = calloc((tensors + 1) * ONEOP_MAX_NDIM, sizeof *self->sizes);
  self->symbols = calloc((tensors + 1) * ONEOP_MAX_NDIM, sizeof *self->symbols);
  self->types = calloc((size_t)text->n_elements + 1, sizeof *self->types);
  self->dims = calloc((size_t)op->entry->n_dims + 1, sizeof *self->dims);
  if (self->inputs == NULL || self->tensors == NULL || self->sizes == NULL || self->symbols == NULL ||
      self->types == NULL || self->dims == NULL)
    return false;
  for (int32_t i = 0; i < text->n_elements; ++i)
    if (text->elements[i].n_types == 1)
      self->types[i] = adapter_types[text->elements[i].types[0]].onnx;
  self->outputs = self->inputs + text->n_inputs;
  return true;
}

static void finish(inference *self) {
  free(self->inputs);
  free(self->tensors);
  free(self->sizes);
  free(self->symbols);
  free(self->types);
  free(self->dims);
  free(self->message);
}

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

static presence read_input(inference *self, const source *from, size_t index, const adapter_tensor *text,
                           size_t tensor);
static bool rank_is_known(const adapter_tensor *text, const oneop_tensor *tensor);

/* False where the model does not say enough: then nothing can be inferred or checked before the model runs. */
static bool describe(inference *self, const source *from) {
  const adapter_operator *text = self->op->text;
  size_t index = 0, tensor = 0;
  for (int32_t i = 0; i < text->n_inputs; ++i) {
    const adapter_tensor *input = &text->inputs[i];
    size_t end = input->arity == ORT_VARIADIC && from->n_inputs > index ? from->n_inputs : index + 1;
    self->inputs[i].tensors = &self->tensors[tensor];
    for (; index < end; ++index) {
      switch (index < from->n_inputs ? read_input(self, from, index, input, tensor) : ABSENT) {
      case PRESENT:
        if (!rank_is_known(input, &self->tensors[tensor]))
          return false;
        ++self->inputs[i].count;
        ++tensor;
        break;
      case ABSENT:
        if (input->arity != ORT_OPTIONAL)
          return false;
        break;
      case UNREADABLE:
        return false;
      }
    }
  }
  for (int32_t i = 0; i < text->n_outputs; ++i) {
    const adapter_tensor *output = &text->outputs[i];
    self->outputs[i].tensors = &self->tensors[tensor];
    self->outputs[i].count = output->arity == ORT_VARIADIC ? self->inputs[output->mirrors].count : 1;
    for (int64_t j = 0; j < self->outputs[i].count; ++j, ++tensor) {
      self->tensors[tensor].device = (oneop_device){1, 0};
      self->tensors[tensor].shape = &self->sizes[tensor * ONEOP_MAX_NDIM];
    }
  }
  return true;
}

static bool rank_is_known(const adapter_tensor *text, const oneop_tensor *tensor) {
  return tensor->ndim > 0 || (text->n_dims == 0 && text->batch < 0);
}

static bool read_sizes(inference *self, const OrtTensorTypeAndShapeInfo *info, size_t tensor);

static presence read_input(inference *self, const source *from, size_t index, const adapter_tensor *text,
                           size_t tensor) {
  const OrtApi *api = self->op->api;
  if (from->context != NULL) {
    OrtTensorTypeAndShapeInfo *info = NULL; /* the context's */
    int element = ORT_UNDEFINED;
    if (!adapter_ok(api, ORT_CALL(api, ShapeInferContext_GetInputTypeShape)(from->context, index, &info)) ||
        !adapter_ok(api, ORT_CALL(api, GetTensorElementType)(info, &element)) || element == ORT_UNDEFINED)
      return ABSENT;
    self->types[text->element] = element;
    return read_sizes(self, info, tensor) ? PRESENT : UNREADABLE;
  }
  OrtTypeInfo *type = NULL;
  const OrtTensorTypeAndShapeInfo *info = NULL; /* the type's */
  if (!adapter_ok(api, ORT_CALL(api, KernelInfo_GetInputTypeInfo)(from->info, index, &type)) || type == NULL)
    return ABSENT;
  bool read = adapter_ok(api, ORT_CALL(api, CastTypeInfoToTensorInfo)(type, &info)) && info != NULL &&
              read_sizes(self, info, tensor);
  for (size_t d = 0; d < ONEOP_MAX_NDIM; ++d)
    self->symbols[tensor * ONEOP_MAX_NDIM + d] = NULL; /* they end with the type */
  ORT_CALL(api, ReleaseTypeInfo)(type);
  return read ? PRESENT : UNREADABLE;
}

static bool read_sizes(inference *self, const OrtTensorTypeAndShapeInfo *info, size_t tensor) {
  const OrtApi *api = self->op->api;
  int64_t *sizes = &self->sizes[tensor * ONEOP_MAX_NDIM];
  const char **symbols = &self->symbols[tensor * ONEOP_MAX_NDIM];
  size_t ndim = 0;
  if (!adapter_ok(api, ORT_CALL(api, GetDimensionsCount)(info, &ndim)) || ndim > ONEOP_MAX_NDIM ||
      !adapter_ok(api, ORT_CALL(api, GetDimensions)(info, sizes, ndim)) ||
      !adapter_ok(api, ORT_CALL(api, GetSymbolicDimensions)(info, symbols, ndim)))
    return false;
  for (size_t d = 0; d < ndim; ++d)
    if (sizes[d] < 0)
      sizes[d] = ONEOP_UNKNOWN;
  self->tensors[tensor] = (oneop_tensor){.device = {1, 0}, .ndim = (int32_t)ndim, .shape = sizes};
  return true;
}

static bool compute(inference *self) {
  const oneop_call call = {self->inputs, self->outputs, self->attributes, self->dims, &self->base};
  return self->op->entry->shapes(&call) == 0;
}

/* ---- Outputs ---------------------------------------------------------------------------------------------------- */

#define MAX_NAME 200

static void name_dimension(const inference *self, int32_t output, int64_t element, int32_t dimension, char *name);

static void set_outputs(const inference *self, OrtShapeInferContext *context) {
  const OrtApi *api = self->op->api;
  size_t index = 0;
  for (int32_t i = 0; i < self->op->text->n_outputs; ++i) {
    if (self->op->text->outputs[i].arity == ORT_VARIADIC)
      return; /* the node may have fewer of these, and nothing here says how many; table.py says why that matters */
    for (int64_t j = 0; j < self->outputs[i].count; ++j, ++index) {
      const oneop_tensor *tensor = &self->outputs[i].tensors[j];
      char names[ONEOP_MAX_NDIM][MAX_NAME];
      const char *pointers[ONEOP_MAX_NDIM];
      int64_t sizes[ONEOP_MAX_NDIM];
      size_t ndim = (size_t)tensor->ndim;
      for (size_t d = 0; d < ndim; ++d) {
        names[d][0] = '\0';
        pointers[d] = names[d];
        sizes[d] = tensor->shape[d];
        if (sizes[d] == ONEOP_UNKNOWN) {
          sizes[d] = -1;
          name_dimension(self, i, j, (int32_t)d, names[d]);
        }
      }
      OrtTensorTypeAndShapeInfo *info = NULL;
      int type = self->types[self->op->text->outputs[i].element];
      if (type == ORT_UNDEFINED)
        continue; /* nothing present says so */
      bool set = adapter_ok(api, ORT_CALL(api, CreateTensorTypeAndShapeInfo)(&info)) &&
                 adapter_ok(api, ORT_CALL(api, SetTensorElementType)(info, type)) &&
                 adapter_ok(api, ORT_CALL(api, SetDimensions)(info, sizes, ndim)) &&
                 adapter_ok(api, ORT_CALL(api, SetSymbolicDimensions)(info, pointers, ndim)) &&
                 adapter_ok(api, ORT_CALL(api, ShapeInferContext_SetOutputTypeShape)(context, index, info));
      if (info != NULL)
        ORT_CALL(api, ReleaseTensorTypeAndShapeInfo)(info);
      if (!set)
        return;
    }
  }
}

static bool carried_name(const inference *self, const adapter_tensor *output, int64_t element, int32_t dimension,
                         int32_t leading, char *name);
static bool computed_name(const inference *self, const char *expression, char *name);

static void name_dimension(const inference *self, int32_t output, int64_t element, int32_t dimension, char *name) {
  static _Atomic unsigned counter;
  const adapter_tensor *text = &self->op->text->outputs[output];
  int32_t leading = self->outputs[output].tensors[element].ndim - text->n_dims; /* dimensions of the batch */
  if (text->mirrors >= 0 || dimension < leading) {
    if (carried_name(self, text, element, dimension, leading, name))
      return;
  } else if (computed_name(self, text->dims[dimension - leading].expression, name)) {
    return;
  }
  snprintf(name, MAX_NAME, "%s_%s_%d_%u", self->op->text->onnx_name, text->name, (int)dimension,
           atomic_fetch_add(&counter, 1));
}

static const char *symbol_of(const inference *self, const oneop_tensor *tensor, int32_t dimension) {
  const char *symbol = self->symbols[(size_t)(tensor - self->tensors) * ONEOP_MAX_NDIM + (size_t)dimension];
  return symbol != NULL && symbol[0] != '\0' && strlen(symbol) < MAX_NAME ? symbol : NULL;
}

/* From the input that the output mirrors, or from any input with the same batch. */
static bool carried_name(const inference *self, const adapter_tensor *output, int64_t element, int32_t dimension,
                         int32_t leading, char *name) {
  for (int32_t i = 0; i < self->op->text->n_inputs; ++i) {
    const adapter_tensor *input = &self->op->text->inputs[i];
    for (int64_t j = 0; j < self->inputs[i].count; ++j) {
      const oneop_tensor *tensor = &self->inputs[i].tensors[j];
      bool same = output->mirrors >= 0 ? output->mirrors == i && element == j
                                       : input->batch == output->batch && tensor->ndim - input->n_dims == leading;
      const char *symbol = same && dimension < tensor->ndim ? symbol_of(self, tensor, dimension) : NULL;
      if (symbol != NULL) {
        snprintf(name, MAX_NAME, "%s", symbol);
        return true;
      }
    }
  }
  return false;
}

/* The value or the symbol that the inputs give to a name; false where they give neither. */
static bool print_name(const inference *self, int32_t wanted, bool alone, char *out, size_t size) {
  const char *symbol = NULL;
  for (int32_t i = 0; i < self->op->text->n_inputs; ++i) {
    const adapter_tensor *input = &self->op->text->inputs[i];
    for (int64_t j = 0; j < self->inputs[i].count; ++j) {
      const oneop_tensor *tensor = &self->inputs[i].tensors[j];
      for (int32_t d = 0; d < input->n_dims; ++d) {
        int32_t at = tensor->ndim - input->n_dims + d;
        if (input->dims[d].name != wanted || at < 0)
          continue;
        if (tensor->shape[at] != ONEOP_UNKNOWN) {
          snprintf(out, size, "%lld", (long long)tensor->shape[at]);
          return true;
        }
        if (symbol == NULL)
          symbol = symbol_of(self, tensor, at);
      }
    }
  }
  if (symbol == NULL)
    return false;
  bool plain = alone || strpbrk(symbol, "+-*/%(), ") == NULL;
  return snprintf(out, size, plain ? "%s" : "(%s)", symbol) < (int)size;
}

static bool computed_name(const inference *self, const char *expression, char *name) {
  size_t used = 0;
  while (*expression != '\0') {
    if (used + 1 >= MAX_NAME)
      return false;
    if (*expression != '{') {
      name[used++] = *expression++;
      continue;
    }
    bool attribute = expression[1] == 'a';
    char *end = NULL;
    long index = strtol(expression + (attribute ? 2 : 1), &end, 10);
    bool alone = used == 0 && end[1] == '\0';
    if (attribute)
      snprintf(name + used, MAX_NAME - used, "%lld", (long long)self->attributes[index].value.i);
    else if (!print_name(self, (int32_t)index, alone, name + used, MAX_NAME - used))
      return false;
    used += strlen(name + used);
    expression = end + 1;
  }
  name[used] = '\0';
  return used > 0 && used + 1 < MAX_NAME;
}
