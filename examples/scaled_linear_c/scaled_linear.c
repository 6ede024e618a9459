/* out = alpha * x @ weight.T + beta * bias, on the CPU. */
#include "scaled_linear.h" /* generated from scaled_linear.py */

enum { LANES = 8 };

/* C has no templates: this is the kernel for one element type, and the last two lines of the file make two of it. A sum in
 * independent lanes lets the compiler use vector registers, and its rounding error grows with k / LANES, not with k. */
#define SCALED_LINEAR(T, DTYPE)                                                                                        \
  static T dot_##DTYPE(const T *x, const T *y, int64_t n) {                                                            \
    T lanes[LANES] = {0}, sum = 0;                                                                                     \
    int64_t p = 0;                                                                                                     \
    for (; p + LANES <= n; p += LANES)                                                                                 \
      for (int64_t lane = 0; lane < LANES; ++lane)                                                                     \
        lanes[lane] += x[p + lane] * y[p + lane];                                                                      \
    for (; p < n; ++p)                                                                                                 \
      sum += x[p] * y[p];                                                                                              \
    for (int64_t lane = 0; lane < LANES; ++lane)                                                                       \
      sum += lanes[lane];                                                                                              \
    return sum;                                                                                                        \
  }                                                                                                                    \
                                                                                                                       \
  /* Elements begin to end of out, counted along its rows. */                                                          \
  static void elements_##DTYPE(void *data, int64_t begin, int64_t end) {                                               \
    const scaled_linear_args_##DTYPE *a = data;                                                                        \
    const T alpha = (T)a->alpha, beta = (T)a->beta;                                                                    \
    for (int64_t e = begin; e < end; ++e) {                                                                            \
      const int64_t i = e / a->m, j = e % a->m;                                                                        \
      const T y = alpha * dot_##DTYPE(a->x.data + i * a->k, a->weight.data + j * a->k, a->k);                          \
      a->out.data[e] = a->bias.present ? y + beta * a->bias.data[j] : y;                                               \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  int scaled_linear_##DTYPE(const scaled_linear_args_##DTYPE *a, oneop_context *ctx) {                                 \
    oneop_parallel_for(ctx, 0, a->n * a->m, 1 + 16384 / (a->k + 1), elements_##DTYPE, (void *)a);                      \
    return 0;                                                                                                          \
  }

SCALED_LINEAR(float, f32)
SCALED_LINEAR(double, f64)
