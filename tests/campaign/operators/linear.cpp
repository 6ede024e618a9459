// The kernels of linear.py.
#include "linear.h"
#include "linear_grad.h"

template <class T> void linear(const linear_args<T> &a, oneop::Context &ctx) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  ctx.parallel_for(0, a.n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < a.m; ++j) {
        T sum = 0;
        for (std::int64_t p = 0; p < a.k; ++p)
          sum += a.x(i, p) * a.weight(j, p);
        a.out(i, j) = alpha * sum + (a.bias ? beta * a.bias(j) : T(0));
      }
  });
}

template <class T> void linear_grad(const linear_grad_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  if (a.needs_x)
    for (std::int64_t i = 0; i < a.n; ++i)
      for (std::int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (std::int64_t j = 0; j < a.m; ++j)
          sum += a.grad(i, j) * a.weight(j, p);
        a.grad_x(i, p) = alpha * sum;
      }
  if (a.needs_weight)
    for (std::int64_t j = 0; j < a.m; ++j)
      for (std::int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (std::int64_t i = 0; i < a.n; ++i)
          sum += a.grad(i, j) * a.x(i, p);
        a.grad_weight(j, p) = alpha * sum;
      }
  if (a.needs_bias)
    for (std::int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (std::int64_t i = 0; i < a.n; ++i)
        sum += a.grad(i, j);
      a.grad_bias(j) = beta * sum;
    }
}
