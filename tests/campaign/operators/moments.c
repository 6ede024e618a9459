/* The kernels of moments.py. */
#include "moments.h"
#include "moments_grad.h"

#define MOMENTS(T, DTYPE)                                                                                              \
  static void rows_##DTYPE(void *data, int64_t begin, int64_t end) {                                                   \
    const moments_args_##DTYPE *a = data;                                                                              \
    for (int64_t i = begin; i < end; ++i) {                                                                            \
      const T *x = a->x.data + i * a->m;                                                                               \
      T sum = 0, squares = 0;                                                                                          \
      int64_t largest = 0;                                                                                             \
      for (int64_t j = 0; j < a->m; ++j) {                                                                             \
        sum += x[j];                                                                                                   \
        if (x[j] > x[largest] || (x[j] != x[j] && x[largest] == x[largest]))                                           \
          largest = j;                                                                                                 \
      }                                                                                                                \
      const T mean = sum / (T)a->m;                                                                                    \
      for (int64_t j = 0; j < a->m; ++j)                                                                               \
        squares += (x[j] - mean) * (x[j] - mean);                                                                      \
      a->mean.data[i] = mean;                                                                                          \
      a->largest.data[i] = largest;                                                                                    \
      a->spread.data[i] = squares / (T)a->m;                                                                           \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  int moments_##DTYPE(const moments_args_##DTYPE *a, oneop_context *ctx) {                                             \
    oneop_parallel_for(ctx, 0, a->n, 1, rows_##DTYPE, (void *)a);                                                      \
    return 0;                                                                                                          \
  }                                                                                                                    \
                                                                                                                       \
  int moments_grad_##DTYPE(const moments_grad_args_##DTYPE *a, oneop_context *ctx) {                                   \
    for (int64_t i = 0; a->needs_x && i < a->n; ++i)                                                                   \
      for (int64_t j = 0; j < a->m; ++j) {                                                                             \
        const T apart = a->x.data[i * a->m + j] - a->mean.data[i];                                                     \
        a->grad_x.data[i * a->m + j] = (a->grad_mean.data[i] + 2 * a->grad_spread.data[i] * apart) / (T)a->m;          \
      }                                                                                                                \
    (void)ctx;                                                                                                         \
    return 0;                                                                                                          \
  }

MOMENTS(float, f32)
MOMENTS(double, f64)
