// The kernels of center.py.
#include "center.h"
#include "center_grad.h"

template <class T> static void without_mean(const T *x, T *out, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += x[i];
  const T mean = sum / static_cast<T>(n);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = x[i] - mean;
}

template <class T> void center(const center_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      without_mean(a.x.data + b * a.n, a.out.data + b * a.n, a.n);
  });
}

template <class T> void center_grad(const center_grad_args<T> &a, oneop::Context &) {
  for (std::int64_t b = 0; a.needs_x && b < a.batch; ++b)
    without_mean(a.grad.data + b * a.n, a.grad_x.data + b * a.n, a.n);
}
