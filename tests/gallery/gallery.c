/* The kernels of gallery.py in C. */
#include "blend.h"
#include "blend_grad.h"
#include "choose.h"
#include "choose_grad.h"
#include "every_attribute.h"

#include <math.h>
#include <string.h>

#define GALLERY(T, DTYPE)                                                                                              \
  int blend_##DTYPE(const blend_args_##DTYPE *a, oneop_context *ctx) {                                                 \
    (void)ctx;                                                                                                         \
    for (int64_t i = 0; i < a->n; ++i)                                                                                 \
      a->out.data[i] = a->mask.data[i] ? a->a.data[i] * (T)pow((double)a->b.data[i], (double)a->power)                 \
                                       : a->c.data[i] * a->b.data[i];                                                  \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int blend_grad_##DTYPE(const blend_grad_args_##DTYPE *a, oneop_context *ctx) {                                       \
    (void)ctx;                                                                                                         \
    for (int64_t i = 0; i < a->n; ++i) {                                                                               \
      const T grad = a->grad.data[i], b = a->b.data[i], n = (T)a->power;                                               \
      const bool mask = a->mask.data[i];                                                                               \
      if (a->needs_a)                                                                                                  \
        a->grad_a.data[i] = mask ? grad * (T)pow((double)b, (double)n) : (T)0;                                         \
      if (a->needs_b)                                                                                                  \
        a->grad_b.data[i] = mask ? grad * a->a.data[i] * n * (T)pow((double)b, (double)n - 1) : grad * a->c.data[i];   \
      if (a->needs_c)                                                                                                  \
        a->grad_c.data[i] = mask ? (T)0 : grad * b;                                                                    \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int choose_##DTYPE(const choose_args_##DTYPE *a, oneop_context *ctx) {                                               \
    (void)ctx;                                                                                                         \
    for (int64_t i = 0; i < a->n; ++i)                                                                                 \
      a->out.data[i] =                                                                                                 \
          a->mask.data[i] ? a->a.data[i] * a->a.data[i] * (T)a->times.data[i] : a->b.data[i] * a->b.data[i];           \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int choose_grad_##DTYPE(const choose_grad_args_##DTYPE *a, oneop_context *ctx) {                                     \
    (void)ctx;                                                                                                         \
    for (int64_t i = 0; i < a->n; ++i) {                                                                               \
      const T twice = 2 * a->grad.data[i];                                                                             \
      if (a->needs_a)                                                                                                  \
        a->grad_a.data[i] = a->mask.data[i] ? twice * a->a.data[i] * (T)a->times.data[i] : (T)0;                       \
      if (a->needs_b)                                                                                                  \
        a->grad_b.data[i] = a->mask.data[i] ? (T)0 : twice * a->b.data[i];                                             \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int every_attribute_##DTYPE(const every_attribute_args_##DTYPE *a, oneop_context *ctx) {                             \
    double value = (double)a->word.size + (a->extra.present ? a->extra.value : 0.0);                                   \
    for (int64_t i = 0; i < a->factors.size; ++i)                                                                      \
      value += a->factors.data[i];                                                                                     \
    for (int64_t i = 0; i < a->shifts.size; ++i)                                                                       \
      value += (double)a->shifts.data[i];                                                                              \
    for (int64_t i = 0; i < a->names.size; ++i)                                                                        \
      value += (double)a->names.data[i].size;                                                                          \
    const bool sum = a->mode.size == 3 && memcmp(a->mode.data, "sum", 3) == 0;                                         \
    if (!sum && a->mode.size != 7)                                                                                     \
      return oneop_fail(ctx, "mode of %d letters", (int)a->mode.size);                                                 \
    for (int64_t i = 0; i < a->n; ++i) {                                                                               \
      const double square = (double)a->x.data[i] * (double)a->x.data[i] * a->scale;                                    \
      const double y = sum ? square + value : square * value;                                                          \
      for (int64_t t = 0; t < a->times; ++t)                                                                           \
        a->out.data[i * a->times + t] = (T)(a->negate ? -y : y);                                                       \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }

GALLERY(float, f32)
GALLERY(double, f64)
