/* The kernels of total.py. */
#include "total.h"
#include "total_grad.h"

#define TOTAL(T, DTYPE)                                                                                                \
  static T power_##DTYPE(T x, int64_t power) {                                                                         \
    T result = 1;                                                                                                      \
    for (int64_t i = 0; i < power; ++i)                                                                                \
      result *= x;                                                                                                     \
    return result;                                                                                                     \
  }                                                                                                                    \
                                                                                                                       \
  static void sums_##DTYPE(void *data, int64_t begin, int64_t end) {                                                   \
    const total_args_##DTYPE *a = data;                                                                                \
    for (int64_t i = begin; i < end; ++i) {                                                                            \
      T sum = 0;                                                                                                       \
      for (int64_t t = 0; t < a->xs.size; ++t)                                                                         \
        sum += power_##DTYPE(a->xs.data[t].data[i], a->power);                                                         \
      a->out.data[i] = a->scale.data[0] * sum;                                                                         \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  int total_##DTYPE(const total_args_##DTYPE *a, oneop_context *ctx) {                                                 \
    oneop_parallel_for(ctx, 0, a->batch * a->n, 2, sums_##DTYPE, (void *)a);                                           \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int total_grad_##DTYPE(const total_grad_args_##DTYPE *a, oneop_context *ctx) {                                       \
    const int64_t count = a->batch * a->n;                                                                             \
    if (a->needs_scale) {                                                                                              \
      a->grad_scale.data[0] = 0;                                                                                       \
      for (int64_t t = 0; t < a->xs.size; ++t)                                                                         \
        for (int64_t i = 0; i < count; ++i)                                                                            \
          a->grad_scale.data[0] += a->grad.data[i] * power_##DTYPE(a->xs.data[t].data[i], a->power);                   \
    }                                                                                                                  \
    for (int64_t t = 0; a->needs_xs && t < a->xs.size; ++t)                                                            \
      for (int64_t i = 0; i < count; ++i)                                                                              \
        a->grad_xs.data[t].data[i] =                                                                                   \
            a->scale.data[0] * a->grad.data[i] * (T)a->power * power_##DTYPE(a->xs.data[t].data[i], a->power - 1);     \
    (void)ctx;                                                                                                         \
    return 0;                                                                                                          \
  }

TOTAL(float, f32)
TOTAL(double, f64)
