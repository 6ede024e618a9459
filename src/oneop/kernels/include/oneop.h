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

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif
#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__CUDACC__)
#define ONEOP_HOST_DEVICE __host__ __device__ /* runs in a CUDA kernel too */
#else
#define ONEOP_HOST_DEVICE
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
  /* Takes note of why the call fails; the first message stands, and the call has then failed whatever `run` returns. A
   * message that does not begin with the operator's name gets it from the host. Thread-safe. */
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

/* What a kernel sees of a tensor. `data` is contiguous (C order) unless the definition says layout="strided"; then element
 * (i, j) is data[i * stride[0] + j * stride[1]]. Strides count elements. */
#define ONEOP_VIEWS(NAME, TYPE)                                                                                        \
  typedef struct oneop_const_view_##NAME {                                                                             \
    const TYPE *data;                                                                                                  \
    int64_t ndim;                                                                                                      \
    const int64_t *size, *stride;                                                                                      \
    bool present; /* false where an optional input is absent */                                                        \
  } oneop_const_view_##NAME;                                                                                           \
  typedef struct oneop_view_##NAME {                                                                                   \
    TYPE *data;                                                                                                        \
    int64_t ndim;                                                                                                      \
    const int64_t *size, *stride;                                                                                      \
    bool present;                                                                                                      \
    const oneop_output *output; /* for oneop_resize, where a size is unknown; NULL otherwise */                        \
  } oneop_view_##NAME;                                                                                                 \
  /* A variadic input, and its gradients. */                                                                           \
  typedef struct oneop_const_views_##NAME {                                                                            \
    const oneop_const_view_##NAME *data;                                                                               \
    int64_t size;                                                                                                      \
  } oneop_const_views_##NAME;                                                                                          \
  typedef struct oneop_views_##NAME {                                                                                  \
    const oneop_view_##NAME *data;                                                                                     \
    int64_t size;                                                                                                      \
  } oneop_views_##NAME;

/* An output whose size the kernel decides. */
typedef struct oneop_output {
  int32_t number;
  int32_t ndim; /* as the kernel sees it: leading dimensions are one */
  const int64_t *size;
  const oneop_tensor *tensor;
  const char *name;
} oneop_output;

ONEOP_VIEWS(f32, float)
ONEOP_VIEWS(f64, double)
ONEOP_VIEWS(f16, oneop_float16)
ONEOP_VIEWS(bf16, oneop_bfloat16)
ONEOP_VIEWS(i8, int8_t)
ONEOP_VIEWS(i16, int16_t)
ONEOP_VIEWS(i32, int32_t)
ONEOP_VIEWS(i64, int64_t)
ONEOP_VIEWS(u8, uint8_t)
ONEOP_VIEWS(u16, uint16_t)
ONEOP_VIEWS(u32, uint32_t)
ONEOP_VIEWS(u64, uint64_t)
ONEOP_VIEWS(bool, bool)

/* Attributes that may be None. */
#define ONEOP_OPTIONAL(NAME, TYPE)                                                                                     \
  typedef struct oneop_optional_##NAME {                                                                               \
    bool present;                                                                                                      \
    TYPE value;                                                                                                        \
  } oneop_optional_##NAME;

ONEOP_OPTIONAL(float, double)
ONEOP_OPTIONAL(int, int64_t)
ONEOP_OPTIONAL(bool, bool)
ONEOP_OPTIONAL(str, oneop_string)
ONEOP_OPTIONAL(floats, oneop_floats)
ONEOP_OPTIONAL(ints, oneop_ints)
ONEOP_OPTIONAL(strings, oneop_strings)

#if defined(__GNUC__)
#define ONEOP_PRINTF(FORMAT, FIRST) __attribute__((format(printf, FORMAT, FIRST)))
#else
#define ONEOP_PRINTF(FORMAT, FIRST)
#endif

/* Calls body(data, b, e) on pieces that cover [begin, end), on the host's threads. No piece but the last is smaller than
 * `grain`. Failures inside `body`: call oneop_fail there; the call then fails, whatever the kernel returns. */
static inline void oneop_parallel_for(oneop_context *ctx, int64_t begin, int64_t end, int64_t grain,
                                      void (*body)(void *data, int64_t begin, int64_t end), void *data) {
  if (begin < end)
    ctx->parallel_for(ctx, begin, end, grain < 1 ? 1 : grain, body, data);
}

/* Memory that lives until the kernel returns, aligned to 64 bytes; NULL where there is none. Not inside parallel_for. */
static inline void *oneop_scratch(oneop_context *ctx, size_t bytes) { return ctx->scratch(ctx, bytes ? bytes : 1); }

/* How many of the `size` bytes of a UTF-8 text remain without a last character that is cut short. */
static inline size_t oneop_whole_characters(const char *text, size_t size) {
  size_t start = size, length;
  unsigned char first;
  while (start > 0 && size - start < 3 && ((unsigned char)text[start - 1] & 0xc0u) == 0x80u)
    --start;
  if (start == 0)
    return size;
  first = (unsigned char)text[start - 1];
  length = first >= 0xf0u ? 4 : first >= 0xe0u ? 3 : first >= 0xc0u ? 2 : 1;
  return size - (start - 1) < length ? start - 1 : size;
}

/* `return oneop_fail(ctx, "k is %d, but ...", k);` ends a kernel with an error message. Always returns 1. */
static inline int oneop_fail(oneop_context *ctx, const char *format, ...) ONEOP_PRINTF(2, 3);
static inline int oneop_fail(oneop_context *ctx, const char *format, ...) {
  char message[1024];
  int length;
  va_list arguments;
  va_start(arguments, format);
  length = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (length >= (int)sizeof message)
    message[oneop_whole_characters(message, sizeof message - 1)] = '\0';
  ctx->fail(ctx, length > 0 ? message : "the kernel failed with an empty message");
  return 1;
}

/* Gives an output with `?` dimensions its sizes, as many as the view has: `oneop_resize(ctx, a->out.output, sizes)`.
 * Returns its memory; NULL where that failed (then return 1: the reason is noted). Not inside parallel_for. */
static inline void *oneop_resize(oneop_context *ctx, const oneop_output *output, const int64_t *sizes) {
  static char empty[64];
  int64_t full[ONEOP_MAX_NDIM];
  int32_t leading, d;
  if (!output) {
    oneop_fail(ctx, "oneop_resize is for outputs with `?` dimensions; the sizes of this one are known");
    return NULL;
  }
  for (d = 0; d < output->ndim; ++d) {
    if (output->size[d] != ONEOP_UNKNOWN && output->size[d] != sizes[d]) {
      oneop_fail(ctx, "the kernel resizes output `%s` to %lld in dimension %d, which is %lld", output->name,
                 (long long)sizes[d], (int)d, (long long)output->size[d]);
      return NULL;
    }
    if (sizes[d] < 0) {
      oneop_fail(ctx, "the kernel resizes output `%s` to %lld in dimension %d", output->name, (long long)sizes[d],
                 (int)d);
      return NULL;
    }
  }
  /* The leading group stands for any number of dimensions of the tensor. */
  leading = output->tensor->ndim - output->ndim;
  for (d = 0; d < output->tensor->ndim; ++d)
    full[d] = leading != 0 && d <= leading ? output->tensor->shape[d] : sizes[d - leading];
  {
    const oneop_tensor *tensor = ctx->resize(ctx, output->number, full, output->tensor->ndim);
    if (!tensor)
      return NULL;
    return tensor->data ? (void *)((char *)tensor->data + tensor->byte_offset) : (void *)empty;
  }
}

ONEOP_HOST_DEVICE static inline float oneop_bfloat16_to_float(oneop_bfloat16 value) {
  const uint32_t bits = (uint32_t)value.bits << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

ONEOP_HOST_DEVICE static inline float oneop_float16_to_float(oneop_float16 value) {
  const uint32_t sign = (uint32_t)(value.bits & 0x8000u) << 16, exponent = (value.bits >> 10) & 31u;
  uint32_t mantissa = value.bits & 1023u, bits;
  float result;
  if (exponent == 31u) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0u) {
    bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  } else { /* zero or subnormal: mantissa * 2^-24, which float holds exactly */
    const float magnitude = (float)mantissa * 5.9604644775390625e-8f;
    memcpy(&bits, &magnitude, sizeof bits);
    bits |= sign;
  }
  memcpy(&result, &bits, sizeof result);
  return result;
}

/* Rounds a double to a format with `exponent_bits` and `mantissa_bits`, to nearest, ties to even, in one step. */
ONEOP_HOST_DEVICE static inline uint16_t oneop_round_double(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
  uint64_t bits, sign, mantissa, kept, rest, half;
  int exponent, drop;
  memcpy(&bits, &value, sizeof bits);
  sign = bits >> 63 << (exponent_bits + mantissa_bits);
  mantissa = bits & ((UINT64_C(1) << 52) - 1);
  exponent = (int)((bits >> 52) & 2047u);
  if (exponent == 2047) /* a NaN stays one, quiet */
    return (uint16_t)(sign | infinity |
                      (mantissa ? (UINT64_C(1) << (mantissa_bits - 1)) | (mantissa >> (52 - mantissa_bits)) : 0u));
  if (exponent == 0)
    return (uint16_t)sign; /* far below the smallest subnormal here */
  exponent += bias - 1023;
  if (exponent >= (1 << exponent_bits) - 1)
    return (uint16_t)(sign | infinity);
  mantissa |= UINT64_C(1) << 52;
  drop = 52 - mantissa_bits;
  if (exponent < 1)
    drop += 1 - exponent; /* subnormal */
  if (drop > 53)
    return (uint16_t)sign;
  kept = mantissa >> drop;
  rest = mantissa & ((UINT64_C(1) << drop) - 1);
  half = UINT64_C(1) << (drop - 1);
  /* A carry runs into the exponent, up to infinity, which is the right result. */
  if (exponent >= 1)
    kept += (uint64_t)(exponent - 1) << mantissa_bits;
  if (rest > half || (rest == half && (kept & 1u)))
    ++kept;
  return (uint16_t)(sign | kept);
}

ONEOP_HOST_DEVICE static inline oneop_float16 oneop_float16_from_double(double value) {
  oneop_float16 result;
  result.bits = oneop_round_double(value, 5, 10);
  return result;
}

ONEOP_HOST_DEVICE static inline oneop_bfloat16 oneop_bfloat16_from_double(double value) {
  oneop_bfloat16 result;
  result.bits = oneop_round_double(value, 8, 7);
  return result;
}

ONEOP_HOST_DEVICE static inline oneop_float16 oneop_float16_from_float(float value) {
  return oneop_float16_from_double((double)value);
}

ONEOP_HOST_DEVICE static inline oneop_bfloat16 oneop_bfloat16_from_float(float value) {
  uint32_t bits;
  oneop_bfloat16 result;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    result.bits = (uint16_t)((bits >> 16) | 64u);
  else
    result.bits = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return result;
}

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
