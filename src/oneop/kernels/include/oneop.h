/* oneop.h: the binary contract between a kernel library and the runtime that calls it. C11 and C++17.
 *
 * ABI version 1. A library exports one function, oneop_library_v1(), which returns its table of operators. Hosts refuse
 * a table whose `abi_version` differs from theirs. Every struct below is plain data; ONEOP_ASSERT_LAYOUT states sizes and
 * offsets on 64-bit machines and is compiled in both languages by the tests. No exception crosses this boundary.
 *
 * One call goes like this:
 *   1. The host describes the tensors (oneop_tensor has the layout of DLPack's DLTensor) and the attributes.
 *   2. It calls the operator's `shapes`, which checks the inputs, binds the dimension names and fills the outputs' shapes.
 *   3. It allocates the outputs, picks the kernel for the call's dtypes and calls its `run`.
 * Both return 0 for success; otherwise they have handed one message to `context->fail`.
 */
#ifndef ONEOP_H
#define ONEOP_H

#include <stddef.h>
#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ONEOP_ABI_VERSION 1
#define ONEOP_MAX_NDIM 32
/* A size that is not known yet: in `shapes` when a model is loaded, and for `?k` before the kernel ran. */
#define ONEOP_UNKNOWN INT64_MIN

typedef struct oneop_device {
  int32_t type; /* DLPack's DLDeviceType: 1 CPU, 2 CUDA */
  int32_t id;
} oneop_device;

typedef struct oneop_dtype {
  uint8_t code; /* DLPack's DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} oneop_dtype;

/* DLPack's DLTensor, member for member. `strides` counts elements and may be NULL for a contiguous tensor. */
typedef struct oneop_tensor {
  void *data;
  oneop_device device;
  int32_t ndim;
  oneop_dtype dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} oneop_tensor;

/* One tensor parameter or result: count is 0 where an optional input is absent, 1, or the length of a variadic input. */
typedef struct oneop_argument {
  oneop_tensor *tensors;
  int64_t count;
} oneop_argument;

typedef struct oneop_string {
  const char *data; /* not terminated by a zero */
  int64_t size;
} oneop_string;

typedef struct oneop_floats {
  const double *data;
  int64_t size;
} oneop_floats;

typedef struct oneop_ints {
  const int64_t *data;
  int64_t size;
} oneop_ints;

typedef struct oneop_strings {
  const oneop_string *data;
  int64_t size;
} oneop_strings;

typedef enum oneop_attribute_kind {
  ONEOP_NONE = 0, /* an optional attribute whose value is None */
  ONEOP_FLOAT = 1,
  ONEOP_INT = 2,
  ONEOP_BOOL = 3, /* in `i` */
  ONEOP_STRING = 4,
  ONEOP_FLOATS = 5,
  ONEOP_INTS = 6,
  ONEOP_STRINGS = 7
} oneop_attribute_kind;

typedef struct oneop_attribute {
  int64_t kind; /* oneop_attribute_kind */
  union {
    double f;
    int64_t i;
    oneop_string s;
    oneop_floats fs;
    oneop_ints is;
    oneop_strings ss;
  } value;
} oneop_attribute;

typedef struct oneop_context oneop_context;

/* What the host lends a kernel for one call. Hosts keep their own state behind this struct. */
struct oneop_context {
  /* Calls body(data, b, e) on pieces that cover [begin, end), on the host's threads; no piece is smaller than `grain`
   * but the last. Returns when all have ended. `body` must not throw. */
  void (*parallel_for)(oneop_context *context, int64_t begin, int64_t end, int64_t grain,
                       void (*body)(void *data, int64_t begin, int64_t end), void *data);
  /* Memory of `bytes` bytes, aligned to 64, valid until `run` returns; NULL where there is none. Not thread-safe. */
  void *(*scratch)(oneop_context *context, size_t bytes);
  /* Allocates output number `output` with these sizes and updates its oneop_tensor; NULL where that fails (the host has
   * then taken note of the reason). Not thread-safe. */
  oneop_tensor *(*resize)(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim);
  /* Takes note of why the call fails; the first message stands. Thread-safe. */
  void (*fail)(oneop_context *context, const char *message);
  /* A cudaStream_t on a CUDA device; NULL on the CPU. */
  void *stream;
};

typedef struct oneop_call {
  const oneop_argument *inputs;      /* one an input parameter, in the definition's order */
  const oneop_argument *outputs;     /* one an output */
  const oneop_attribute *attributes; /* one an attribute, in the definition's order */
  int64_t *dims; /* room for `n_dims` sizes, in the definition's order; `shapes` fills it, `run` reads it */
  oneop_context *context;
} oneop_call;

typedef int (*oneop_function)(const oneop_call *call);

/* A kernel for one combination of dtypes: one a dtype variable, in the definition's order. */
typedef struct oneop_kernel {
  const oneop_dtype *dtypes;
  int32_t device_type; /* DLPack's DLDeviceType */
  oneop_function run;
} oneop_kernel;

typedef struct oneop_operator {
  const char *name;        /* "namespace::base" */
  const char *fingerprint; /* of the definition */
  int32_t n_inputs, n_outputs, n_attributes;
  int32_t n_dims;   /* room that `dims` needs */
  int32_t n_dtypes; /* dtype variables */
  int32_t n_kernels;
  /* Fills in, for every output tensor, `ndim` and the sizes in `shape` (room for ONEOP_MAX_NDIM), and `dims`. Reads
   * ndim, shape and count of the inputs, and count of the outputs. A size of ONEOP_UNKNOWN gives unknown results. */
  oneop_function shapes;
  const oneop_kernel *kernels;
} oneop_operator;

typedef struct oneop_library {
  uint32_t abi_version; /* first, so that any host can read it */
  int32_t n_operators;
  const oneop_operator *operators;
} oneop_library;

#if defined(__GNUC__)
#define ONEOP_EXPORT __attribute__((visibility("default")))
#else
#define ONEOP_EXPORT
#endif

typedef const oneop_library *(*oneop_library_function)(void);
#define ONEOP_LIBRARY_SYMBOL "oneop_library_v1"

/* ---- For kernels in C ------------------------------------------------------------------------------------------ */

typedef struct oneop_float16 {
  uint16_t bits;
} oneop_float16;

typedef struct oneop_bfloat16 {
  uint16_t bits;
} oneop_bfloat16;

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
#define ONEOP_STATIC_ASSERT static_assert
#else
#define ONEOP_STATIC_ASSERT _Static_assert
#endif
#define ONEOP_ASSERT_LAYOUT                                                                                            \
  ONEOP_STATIC_ASSERT(sizeof(void *) == 8, "oneop needs a 64-bit machine");                                            \
  ONEOP_STATIC_ASSERT(sizeof(oneop_tensor) == 48, "oneop_tensor");                                                     \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, device) == 8, "oneop_tensor.device");                                     \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, ndim) == 16, "oneop_tensor.ndim");                                        \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, dtype) == 20, "oneop_tensor.dtype");                                      \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, shape) == 24, "oneop_tensor.shape");                                      \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, strides) == 32, "oneop_tensor.strides");                                  \
  ONEOP_STATIC_ASSERT(offsetof(oneop_tensor, byte_offset) == 40, "oneop_tensor.byte_offset");                          \
  ONEOP_STATIC_ASSERT(sizeof(oneop_argument) == 16, "oneop_argument");                                                 \
  ONEOP_STATIC_ASSERT(sizeof(oneop_attribute) == 24, "oneop_attribute");                                               \
  ONEOP_STATIC_ASSERT(offsetof(oneop_attribute, value) == 8, "oneop_attribute.value");                                 \
  ONEOP_STATIC_ASSERT(sizeof(oneop_context) == 40, "oneop_context");                                                   \
  ONEOP_STATIC_ASSERT(offsetof(oneop_context, stream) == 32, "oneop_context.stream");                                  \
  ONEOP_STATIC_ASSERT(sizeof(oneop_call) == 40, "oneop_call");                                                         \
  ONEOP_STATIC_ASSERT(sizeof(oneop_kernel) == 24, "oneop_kernel");                                                     \
  ONEOP_STATIC_ASSERT(sizeof(oneop_operator) == 56, "oneop_operator");                                                 \
  ONEOP_STATIC_ASSERT(sizeof(oneop_library) == 16, "oneop_library")

#endif /* ONEOP_H */
