// The kernels of outer.py.
#include "outer.h"
#include "outer_grad.h"

template <class T> void outer(const outer_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.n * a.k, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t i = at / a.k, l = at % a.k;
      for (std::int64_t j = 0; j < a.m; ++j)
        a.out(i, l, j) = a.x.data[i * a.x.stride(0) + j * a.x.stride(1)] * a.y(j, l);
    }
  });
}

template <class T> void outer_grad(const outer_grad_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; a.needs_x && i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (std::int64_t l = 0; l < a.k; ++l)
        sum += a.grad(i, l, j) * a.y(j, l);
      a.grad_x(i, j) = sum;
    }
  for (std::int64_t j = 0; a.needs_y && j < a.m; ++j)
    for (std::int64_t l = 0; l < a.k; ++l) {
      T sum = 0;
      for (std::int64_t i = 0; i < a.n; ++i)
        sum += a.grad(i, l, j) * a.x(i, j);
      a.grad_y(j, l) = sum;
    }
}
