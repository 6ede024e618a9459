/* The kernel of plain.py. */
#include "scaled.h"

#define SCALED(T, DTYPE)                                                                                               \
  int scaled_##DTYPE(const scaled_args_##DTYPE *a, oneop_context *ctx) {                                               \
    if (a->alpha < 0)                                                                                                  \
      return oneop_fail(ctx, "scaled: alpha is negative");                                                             \
    for (int64_t i = 0; i < a->n; ++i)                                                                                 \
      a->out.data[i] = (T)a->alpha * a->x.data[i];                                                                     \
    return 0;                                                                                                          \
  }

SCALED(float, f32)
SCALED(double, f64)
