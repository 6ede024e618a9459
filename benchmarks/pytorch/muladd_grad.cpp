#include "muladd_grad.h"

template <class T> void muladd_grad(const muladd_grad_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha);
  const int64_t n = a.batch * a.n;
  if (a.needs_x)
    for (int64_t i = 0; i < n; ++i)
      a.grad_x.data[i] = alpha * a.grad.data[i] * a.w.data[i];
  if (a.needs_w)
    for (int64_t i = 0; i < n; ++i)
      a.grad_w.data[i] = alpha * a.grad.data[i] * a.x.data[i];
}
