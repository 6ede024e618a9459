// The kernels of softmax.py.
#include "softmax.h"
#include "softmax_grad.h"

#include <cmath>

template <class T> void softmax(const softmax_args<T> &a, oneop::Context &ctx) {
  const T temperature = static_cast<T>(a.temperature);
  T *const scaled = ctx.scratch<T>(a.batch * a.n);
  ctx.parallel_for(0, a.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      T *const row = scaled + b * a.n;
      T largest = -std::numeric_limits<T>::infinity(), sum = 0;
      for (std::int64_t i = 0; i < a.n; ++i) {
        row[i] = a.x(b, i) / temperature;
        if (row[i] > largest || row[i] != row[i])
          largest = row[i];
      }
      for (std::int64_t i = 0; i < a.n; ++i)
        sum += row[i] = std::exp(row[i] - largest);
      for (std::int64_t i = 0; i < a.n; ++i)
        a.out(b, i) = row[i] / sum;
    }
  });
}

template <class T> void softmax_grad(const softmax_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  const T temperature = static_cast<T>(a.temperature);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    T sum = 0;
    for (std::int64_t i = 0; i < a.n; ++i)
      sum += a.grad(b, i) * a.out(b, i);
    for (std::int64_t i = 0; i < a.n; ++i)
      a.grad_x(b, i) = a.out(b, i) * (a.grad(b, i) - sum) / temperature;
  }
}
