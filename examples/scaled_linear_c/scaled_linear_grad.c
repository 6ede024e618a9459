/* The gradients of scaled_linear: alpha * grad @ weight, alpha * grad.T @ x and beta * grad.sum(0), those asked for. */
#include "scaled_linear_grad.h" /* generated from scaled_linear.py */

#include <string.h>

/* One element type; the last two lines of the file make two of it. Each loop over p adds a row to a row, which the compiler
 * turns into vector instructions. */
#define SCALED_LINEAR_GRAD(T, DTYPE)                                                                                   \
  static void add_##DTYPE(T *out, T factor, const T *row, int64_t n) {                                                 \
    for (int64_t p = 0; p < n; ++p)                                                                                    \
      out[p] += factor * row[p];                                                                                       \
  }                                                                                                                    \
                                                                                                                       \
  static void zero_##DTYPE(T *out, int64_t n) {                                                                        \
    if (n > 0)                                                                                                         \
      memset(out, 0, (size_t)n * sizeof *out);                                                                         \
  }                                                                                                                    \
                                                                                                                       \
  static void rows_of_x_##DTYPE(void *data, int64_t begin, int64_t end) {                                              \
    const scaled_linear_grad_args_##DTYPE *a = data;                                                                   \
    for (int64_t i = begin; i < end; ++i) {                                                                            \
      T *out = a->grad_x.data + i * a->k;                                                                              \
      zero_##DTYPE(out, a->k);                                                                                         \
      for (int64_t j = 0; j < a->m; ++j)                                                                               \
        add_##DTYPE(out, (T)a->alpha * a->grad.data[i * a->m + j], a->weight.data + j * a->k, a->k);                   \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  static void rows_of_weight_##DTYPE(void *data, int64_t begin, int64_t end) {                                         \
    const scaled_linear_grad_args_##DTYPE *a = data;                                                                   \
    for (int64_t j = begin; j < end; ++j) {                                                                            \
      T *out = a->grad_weight.data + j * a->k;                                                                         \
      zero_##DTYPE(out, a->k);                                                                                         \
      for (int64_t i = 0; i < a->n; ++i)                                                                               \
        add_##DTYPE(out, (T)a->alpha * a->grad.data[i * a->m + j], a->x.data + i * a->k, a->k);                        \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  int scaled_linear_grad_##DTYPE(const scaled_linear_grad_args_##DTYPE *a, oneop_context *ctx) {                       \
    if (a->needs_x)                                                                                                    \
      oneop_parallel_for(ctx, 0, a->n, 1 + 16384 / (a->m * a->k + 1), rows_of_x_##DTYPE, (void *)a);                   \
    if (a->needs_weight)                                                                                               \
      oneop_parallel_for(ctx, 0, a->m, 1 + 16384 / (a->n * a->k + 1), rows_of_weight_##DTYPE, (void *)a);              \
    if (a->needs_bias && a->bias.present) {                                                                            \
      zero_##DTYPE(a->grad_bias.data, a->m);                                                                           \
      for (int64_t i = 0; i < a->n; ++i)                                                                               \
        add_##DTYPE(a->grad_bias.data, (T)a->beta, a->grad.data + i * a->m, a->m);                                     \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }

SCALED_LINEAR_GRAD(float, f32)
SCALED_LINEAR_GRAD(double, f64)
