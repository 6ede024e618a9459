/* results.c: what calls gave, compared element by element. */
#include "driver.h"

#include <math.h>
#include <stdlib.h>

result take_result(const call *self) {
  result taken = {self->test->n_output_tensors, allocate((size_t)self->test->n_output_tensors, sizeof(result_tensor))};
  for (int64_t t = 0; t < taken.count; ++t) {
    int64_t number, of_number;
    number_of(self->test->n_outputs, self->outputs, t, &number, &of_number);
    const oneop_tensor *tensor = &self->output_tensors[t];
    const block *block = &self->output_blocks[t];
    result_tensor *mine = &taken.tensors[t];
    mine->dtype = tensor->dtype;
    mine->matters = self->test->outputs[number].matters;
    mine->ndim = tensor->ndim;
    memcpy(mine->shape, tensor->shape, sizeof(int64_t) * (size_t)tensor->ndim);
    mine->bytes = block->size;
    mine->count = (int64_t)(block->size / bytes_of(tensor->dtype));
    mine->data = allocate(1, block->size ? block->size : 1);
    if (block->size)
      memcpy(mine->data, block->data, block->size);
  }
  return taken;
}

void free_result(result *self) {
  for (int64_t t = 0; t < self->count; ++t)
    free(self->tensors[t].data);
  free(self->tensors);
  *self = (result){0, NULL};
}

static bool is_floating(oneop_dtype dtype) { return dtype.code == 2 || dtype.code == 4; }

static double number_at(oneop_dtype dtype, const char *data, int64_t element) {
  const char *at = data + (size_t)element * bytes_of(dtype);
#define CASE(CODE, BITS, TYPE, EXPRESSION)                                                                             \
  if (dtype.code == CODE && dtype.bits == BITS) {                                                                      \
    TYPE value;                                                                                                        \
    memcpy(&value, at, sizeof value);                                                                                  \
    return (double)(EXPRESSION);                                                                                       \
  }
  CASE(2, 32, float, value)
  CASE(2, 64, double, value)
  CASE(2, 16, oneop_float16, oneop_float16_to_float(value))
  CASE(4, 16, oneop_bfloat16, oneop_bfloat16_to_float(value))
  CASE(0, 8, int8_t, value)
  CASE(0, 16, int16_t, value)
  CASE(0, 32, int32_t, value)
  CASE(0, 64, int64_t, value)
  CASE(1, 16, uint16_t, value)
  CASE(1, 32, uint32_t, value)
  CASE(1, 64, uint64_t, value)
  CASE(1, 8, uint8_t, value)
  CASE(6, 8, uint8_t, value)
#undef CASE
  return 0;
}

/* How far two roundings of the same sum may lie apart, relative to the largest number in the tensor. */
static double tolerance(oneop_dtype dtype) {
  if (dtype.code == 4)
    return 8 * 0x1p-8;
  return dtype.bits == 64 ? 256 * 0x1p-53 : dtype.bits == 32 ? 256 * 0x1p-24 : 8 * 0x1p-11;
}

static double largest(const result_tensor *tensor) {
  double found = 0;
  for (int64_t e = 0; e < tensor->count; ++e) {
    const double value = fabs(number_at(tensor->dtype, tensor->data, e));
    if (isfinite(value) && value > found)
      found = value;
  }
  return found;
}

static bool differs(const result_tensor *expected, const char *given, int64_t element, bool close, double allowed) {
  const size_t size = bytes_of(expected->dtype);
  if (memcmp(expected->data + (size_t)element * size, given + (size_t)element * size, size) == 0)
    return false;
  if (!is_floating(expected->dtype))
    return true;
  const double a = number_at(expected->dtype, expected->data, element), b = number_at(expected->dtype, given, element);
  if (isnan(a) && isnan(b))
    return false;
  return !(close && fabs(a - b) <= allowed);
}

static void compare_tensor(difference *found, const result_tensor *expected, const block *given, int64_t flat,
                           bool close) {
  if (!expected->matters || expected->bytes == 0 || memcmp(expected->data, given->data, expected->bytes) == 0)
    return;
  const double allowed = close ? tolerance(expected->dtype) * largest(expected) : 0;
  for (int64_t e = 0; e < expected->count; ++e) {
    if (!differs(expected, given->data, e, close, allowed))
      continue;
    if (!found->found) {
      *found = (difference){.found = true, .flat = flat, .element = e};
      found->first = number_at(expected->dtype, expected->data, e);
      found->second = number_at(expected->dtype, given->data, e);
    }
    found->elements += found->flat == flat;
  }
}

difference compare(const result *expected, const call *given, bool close) {
  difference found = {0};
  for (int64_t t = 0; t < expected->count; ++t) {
    const result_tensor *tensor = &expected->tensors[t];
    const oneop_tensor *other = &given->output_tensors[t];
    if (tensor->ndim != other->ndim ||
        memcmp(tensor->shape, other->shape, sizeof(int64_t) * (size_t)tensor->ndim) != 0) {
      if (!found.found)
        found = (difference){.found = true, .shape = true, .flat = t};
      continue;
    }
    compare_tensor(&found, tensor, &given->output_blocks[t], t, close);
  }
  return found;
}
