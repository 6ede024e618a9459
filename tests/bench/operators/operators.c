/* The kernels of operators.py: two that are right, some that are wrong and one that fails. */
#include "bare.h"
#include "failing.h"
#include "forgetful.h"
#include "half_gradient.h"
#include "half_gradient_grad.h"
#include "lost_beta.h"
#include "scaled_add.h"
#include "wrong_integers.h"

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

int lost_beta_f32(const lost_beta_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = (float)a->alpha * a->x.data[i];
  return 0;
}

int wrong_integers(const wrong_integers_args *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = 3 * a->x.data[i] + (INT64_C(1) << 53) + (i == 7);
  return 0;
}

int half_gradient_f32(const half_gradient_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = a->x.data[i] * a->x.data[i];
  return 0;
}

int half_gradient_grad_f32(const half_gradient_grad_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->grad_x.data[i] = a->grad.data[i] * a->x.data[i];
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
