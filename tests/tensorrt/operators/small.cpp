// The kernels of small.py for the CPU.
#include "kept.h"
#include "repeated.h"
#include "scaled.h"
#include "shifted.h"

#include <algorithm>

template <class T> void scaled(const scaled_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = static_cast<T>(a.alpha) * a.x(i) + static_cast<T>(a.beta);
}

template <class T> void shifted(const shifted_args<T> &a, oneop::Context &) {
  const double shift = a.by ? *a.by * static_cast<double>(a.times) : 0.0;
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = static_cast<T>(static_cast<double>(a.x(i)) + shift);
}

template <class T> void repeated(const repeated_args<T> &a, oneop::Context &ctx) {
  T *row = ctx.scratch<T>(a.n);
  std::copy(a.x.begin(), a.x.end(), row);
  for (std::int64_t i = 0; i < a.times; ++i)
    std::copy(row, row + a.n, a.out.begin() + i * a.n);
}

template <class T> void kept(const kept_args<T> &a, oneop::Context &ctx) {
  const auto out = ctx.resize(a.out, {std::count_if(a.x.begin(), a.x.end(), [](T value) { return value > 0; })});
  std::copy_if(a.x.begin(), a.x.end(), out.begin(), [](T value) { return value > 0; });
}
