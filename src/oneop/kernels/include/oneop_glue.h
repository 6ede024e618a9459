/* oneop_glue.h: from the tensors of a call to what a kernel sees of them. For generated code only; C11 and C++17. */
#ifndef ONEOP_GLUE_H
#define ONEOP_GLUE_H

#include "oneop.h"

/* Where a leading group (`*batch`) may be read: an input, and how many dimensions follow the group. */
typedef struct oneop_place {
  int32_t input;
  int32_t n_dims;
} oneop_place;

static inline void *oneop_data(const oneop_tensor *tensor) {
  return tensor->data ? (void *)((char *)tensor->data + tensor->byte_offset) : NULL;
}

/* Wraps around, which only happens where another size is 0. */
static inline int64_t oneop_product(const int64_t *sizes, int32_t count) {
  uint64_t product = 1;
  for (int32_t d = 0; d < count; ++d)
    product *= (uint64_t)sizes[d];
  return (int64_t)product;
}

/* The sizes that a kernel sees: the leading group, where there is one, as one dimension. */
static inline void oneop_view_sizes(const oneop_tensor *tensor, int32_t n_dims, bool group, int64_t *size) {
  const int32_t leading = tensor->ndim - n_dims;
  if (group) {
    *size++ = oneop_product(tensor->shape, leading);
  }
  for (int32_t d = 0; d < n_dims; ++d)
    size[d] = tensor->shape[leading + d];
}

static inline void oneop_contiguous_strides(const int64_t *size, int32_t ndim, int64_t *stride) {
  for (int32_t d = 0; d < ndim; ++d)
    stride[d] = oneop_product(size + d + 1, ndim - d - 1);
}

/* The strides that go with oneop_view_sizes. The host promises that the leading group can be seen as one dimension. */
static inline void oneop_view_strides(const oneop_tensor *tensor, int32_t n_dims, bool group, const int64_t *size,
                                      int64_t *stride) {
  const int32_t leading = tensor->ndim - n_dims;
  if (!tensor->strides) {
    oneop_contiguous_strides(size, n_dims + (group ? 1 : 0), stride);
    return;
  }
  if (group) {
    int32_t last = leading - 1;
    while (last >= 0 && tensor->shape[last] == 1)
      --last;
    *stride++ = last < 0 ? 0 : tensor->strides[last];
  }
  for (int32_t d = 0; d < n_dims; ++d)
    stride[d] = tensor->strides[leading + d];
}

/* The size of a leading group: from the first place whose input is there. */
static inline int64_t oneop_group_size(const oneop_call *call, const oneop_place *places, int32_t n_places) {
  for (int32_t p = 0; p < n_places; ++p) {
    const oneop_argument *input = &call->inputs[places[p].input];
    if (input->count > 0)
      return oneop_product(input->tensors[0].shape, input->tensors[0].ndim - places[p].n_dims);
  }
  return 0;
}

/* A size by its name; 0 where only absent inputs would bind it. */
static inline int64_t oneop_size_of(const oneop_call *call, int32_t dim) {
  return call->dims[dim] == ONEOP_UNKNOWN ? 0 : call->dims[dim];
}

/* Whether somebody asks for the gradient of an input; `bits` is the value of `needs`. Nobody can, where it is absent. */
static inline bool oneop_needs(const oneop_call *call, int64_t bits, int32_t bit, int32_t input) {
  return ((uint64_t)bits >> bit & 1u) != 0 && call->inputs[input].count > 0;
}

/* After the kernel: every output with `?` dimensions has its sizes. */
static inline int oneop_check_resized(const oneop_call *call, const char *op, const char *name, int32_t output) {
  const oneop_tensor *tensor = &call->outputs[output].tensors[0];
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] == ONEOP_UNKNOWN)
      return oneop_fail(
          call->context,
          "%s: the kernel gave output `%s` no size. Call ctx.resize (in C: oneop_resize) on it before the end.", op,
          name);
  return 0;
}

/* After the kernel: two dimensions with one name (`?k`) have one size. Dimensions count from the end. */
static inline int oneop_check_same(const oneop_call *call, const char *op, const char *dim, int32_t output,
                                   int32_t from_end, int32_t other, int32_t other_from_end) {
  const oneop_tensor *a = &call->outputs[output].tensors[0], *b = &call->outputs[other].tensors[0];
  const int64_t first = a->shape[a->ndim - from_end], second = b->shape[b->ndim - other_from_end];
  if (first == second)
    return 0;
  return oneop_fail(call->context, "%s: the kernel gave `?%s` the sizes %lld and %lld. Give it one.", op, dim,
                    (long long)first, (long long)second);
}

#endif /* ONEOP_GLUE_H */
