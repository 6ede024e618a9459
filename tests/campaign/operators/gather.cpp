// The kernels of gather.py.
#include "gather.h"
#include "gather_grad.h"

#include <algorithm>
#include <string>

template <class T> void gather(const gather_args<T> &a, oneop::Context &ctx) {
  for (std::int64_t i = 0; i < a.k; ++i) {
    const std::int64_t row = a.index(i);
    if (row < 0 || row >= a.n)
      ctx.fail("index " + std::to_string(row) + " is outside [0, " + std::to_string(a.n) + ")");
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = a.x(row, j);
  }
}

template <class T> void gather_grad(const gather_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  std::fill_n(a.grad_x.data, a.grad_x.numel(), T(0));
  for (std::int64_t i = 0; i < a.k; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.grad_x(a.index(i), j) += a.grad(i, j);
}
