/* adapter.h: what the parts of the ONNX Runtime adapter share. C11.
 *
 * The adapter is the same C for every operator. What differs stands in two tables of the same library: oneop's own
 * (oneop_library_v1: how sizes are computed, which kernels there are) and the one below, which oneop generates beside
 * it (names, arity, defaults: what ONNX Runtime asks for and kernels do not need).
 */
#ifndef ONEOP_ADAPTER_H
#define ONEOP_ADAPTER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oneop.h"
#include "ort_api.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* ---- The generated table --------------------------------------------------------------------------------------- */

typedef struct adapter_type {
  oneop_dtype dtype;
  int32_t onnx; /* ONNXTensorElementDataType */
  const char *name;
} adapter_type;

typedef struct adapter_element { /* a dtype variable and the types it admits: indexes into adapter_types */
  const char *name;
  int32_t n_types;
  const int32_t *types;
} adapter_element;

/* An input's dimension: the index of the name it binds, or -1. An output's: its expression, where {0} stands for the
 * value of name 0 and {a0} for that of attribute 0. */
typedef struct adapter_dim {
  int32_t name;
  const char *expression;
} adapter_dim;

typedef struct adapter_tensor {
  const char *name;
  int32_t arity;   /* ORT_REQUIRED, ORT_OPTIONAL or ORT_VARIADIC */
  int32_t element; /* its dtype variable */
  int32_t batch;   /* the group of leading dimensions, or -1 */
  int32_t mirrors; /* of an output: the input that it has the shape of, or -1 */
  int32_t n_dims;
  const adapter_dim *dims;
} adapter_tensor;

typedef struct adapter_attribute {
  const char *name;
  int64_t kind; /* oneop_attribute_kind */
  bool required;
  bool optional;         /* admits None */
  oneop_attribute value; /* the default */
  int32_t n_choices;
  const oneop_attribute *choices;
} adapter_attribute;

typedef struct adapter_operator {
  const char *name; /* as in oneop's table: "namespace::base" */
  const char *domain, *onnx_name;
  int32_t n_inputs, n_outputs, n_attributes, n_elements;
  int32_t n_names, n_batches; /* of dimensions */
  const adapter_tensor *inputs, *outputs;
  const adapter_attribute *attributes;
  const adapter_element *elements;
} adapter_operator;

extern const char adapter_library_name[];
extern const adapter_type adapter_types[];
extern const int32_t adapter_n_operators;
extern const adapter_operator adapter_operators[];
extern const oneop_library *adapter_kernels(void); /* oneop_library_v1 of this very library */

/* ---- Objects that ONNX Runtime holds --------------------------------------------------------------------------- */

/* DLPack's numbers of the devices that kernels are registered for. */
enum { ADAPTER_CPU = 1, ADAPTER_CUDA = 2 };

/* One registration: an operator with one combination of dtypes, on one device. */
typedef struct adapter_op {
  OrtCustomOp base; /* first: callbacks get a pointer to it */
  const OrtApi *api;
  uint32_t version; /* of the runtime's API, as far as this adapter knows it */
  const adapter_operator *text;
  const oneop_operator *entry;
  int32_t device;
  oneop_function run;   /* NULL: there is no kernel for these dtypes */
  const int32_t *types; /* one a dtype variable: indexes into adapter_types */
  struct adapter_op *next;
} adapter_op;

/* One node of one session: everything that does not change between runs. Nothing here is written after creation. */
typedef struct adapter_kernel {
  const OrtApi *api;
  const adapter_op *op;
  oneop_attribute *attributes;
  void *memory;          /* what the attributes point to */
  oneop_tensor *tensors; /* of inputs, then of outputs: what every run starts from */
  int32_t n_node_inputs, n_node_outputs;
  int32_t n_input_tensors, n_output_tensors;
  int32_t max_pieces; /* into which parallel_for divides a range */
  size_t frame_size;  /* bytes that one run needs for its tensors' descriptions */
} adapter_kernel;

/* ---- registration.c -------------------------------------------------------------------------------------------- */

/* A status with a formatted message, prefixed by nothing: messages name their operator. */
OrtStatus *adapter_error(const OrtApi *api, int code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
/* True for success; releases the status otherwise. */
bool adapter_ok(const OrtApi *api, OrtStatus *status);
oneop_function adapter_find_kernel(const oneop_operator *entry, const adapter_operator *text, const int32_t *types,
                                   int32_t device);
const adapter_type *adapter_type_of(const adapter_op *op, const adapter_tensor *tensor);

/* ---- attributes.c ---------------------------------------------------------------------------------------------- */

/* Fills kernel->attributes from the node, the definition's defaults where it is silent. */
OrtStatus *adapter_read_attributes(adapter_kernel *kernel, const OrtKernelInfo *info, const char *node);
/* Sets those attributes that sizes may depend on (integers) from a shape context; false where one is missing. */
bool adapter_read_sizes(const adapter_op *op, const OrtShapeInferContext *context, oneop_attribute *attributes);
/* Takes note of the node's lists of strings, which runtimes before 1.25 show to shape inference only. */
void adapter_note_strings(const adapter_op *op, const OrtShapeInferContext *context);

/* ---- shapes.c -------------------------------------------------------------------------------------------------- */

OrtStatus *adapter_infer_shapes(const OrtCustomOp *op, OrtShapeInferContext *context);
/* Checks the sizes that a model states, so that what cannot fit is refused when the model is loaded. */
OrtStatus *adapter_check_shapes(const adapter_kernel *kernel, const OrtKernelInfo *info);

/* ---- compute.c ------------------------------------------------------------------------------------------------- */

OrtStatus *adapter_create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
OrtStatus *adapter_compute(void *kernel, OrtKernelContext *context);
void adapter_destroy(void *kernel);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif /* ONEOP_ADAPTER_H */
