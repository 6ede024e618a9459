// The gradients of scaled_linear: alpha * grad @ weight, alpha * grad.T @ x and beta * grad.sum(0), those asked for.
#include "scaled_linear_grad.h" // generated from scaled_linear.py

#include <algorithm>

namespace {

// out = sum over i of factor(i) * rows[i]; four rows at a time, so that out is loaded and stored a quarter as often.
template <class T, class Factor>
void weighted_sum(T *out, const T *rows, int64_t count, int64_t k, const Factor &factor) {
  std::fill(out, out + k, T(0));
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const T f0 = factor(i), f1 = factor(i + 1), f2 = factor(i + 2), f3 = factor(i + 3);
    const T *r = rows + i * k;
    for (int64_t p = 0; p < k; ++p)
      out[p] += f0 * r[p] + f1 * r[k + p] + f2 * r[2 * k + p] + f3 * r[3 * k + p];
  }
  for (; i < count; ++i) {
    const T f = factor(i);
    for (int64_t p = 0; p < k; ++p)
      out[p] += f * rows[i * k + p];
  }
}

} // namespace

template <class T> void scaled_linear_grad(const scaled_linear_grad_args<T> &a, oneop::Context &ctx) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  if (a.needs_x)
    ctx.parallel_for(0, a.n, 1 + 16384 / (a.m * a.k + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        weighted_sum(a.grad_x.data + i * a.k, a.weight.data, a.m, a.k, [&](int64_t j) { return alpha * a.grad(i, j); });
    });
  if (a.needs_weight)
    ctx.parallel_for(0, a.m, 1 + 16384 / (a.n * a.k + 1), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j)
        weighted_sum(a.grad_weight.data + j * a.k, a.x.data, a.n, a.k, [&](int64_t i) { return alpha * a.grad(i, j); });
    });
  if (a.needs_bias && a.bias)
    weighted_sum(a.grad_bias.data, a.grad.data, a.n, a.m, [&](int64_t) { return beta; });
}
