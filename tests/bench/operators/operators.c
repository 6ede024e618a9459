/* The kernels of operators.py: two that are right, one that is wrong and one that fails. */
#include "bare.h"
#include "failing.h"
#include "forgetful.h"
#include "scaled_add.h"

#define SCALED_ADD(suffix, T)                                                                                          \
  int scaled_add_##suffix(const scaled_add_args_##suffix *a, oneop_context *ctx) {                                     \
    (void)ctx;                                                                                                         \
    for (int64_t i = 0; i < a->n; ++i)                                                                                 \
      a->out.data[i] = (T)a->alpha * a->x.data[i] + (a->y.present ? a->y.data[i] : (T)0);                              \
    return 0;                                                                                                          \
  }
SCALED_ADD(f32, float)
SCALED_ADD(f64, double)

int forgetful_f32(const forgetful_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = a->x.data[i];
  return 0;
}

int failing_f32(const failing_args_f32 *a, oneop_context *ctx) {
  (void)a;
  return oneop_fail(ctx, "out of luck");
}

int bare_f32(const bare_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = 2 * a->x.data[i];
  return 0;
}
