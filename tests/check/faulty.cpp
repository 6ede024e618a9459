// The kernels of faulty.py. Each has one fault, and a comment that names it.
#include "branching.h"
#include "crashing.h"
#include "dropped.h"
#include "exchanged.h"
#include "far.h"
#include "in_pieces.h"
#include "keeping.h"
#include "lost_nan.h"
#include "nearly.h"
#include "racing.h"
#include "right.h"
#include "right_grad.h"
#include "short_of_one.h"
#include "summed.h"
#include "summed_grad.h"
#include "unstrided.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

template <class T> void right(const right_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) =
          static_cast<T>(a.alpha) * a.x(i, j) * a.x(i, j) + (a.bias ? static_cast<T>(a.beta) * a.bias(j) : T(0));
}

template <class T> void right_grad(const right_grad_args<T> &a, oneop::Context &) {
  for (std::int64_t j = 0; j < a.m; ++j) {
    T sum(0);
    for (std::int64_t i = 0; i < a.n; ++i) {
      sum += a.grad(i, j);
      if (a.needs_x)
        a.grad_x(i, j) = 2 * static_cast<T>(a.alpha) * a.grad(i, j) * a.x(i, j);
    }
    if (a.needs_bias)
      a.grad_bias(j) = static_cast<T>(a.beta) * sum;
  }
}

template <class T> void dropped(const dropped_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = static_cast<T>(a.alpha) * a.x(i, j) + T(0.5); // beta is 0.5 by default
}

template <class T> void nearly(const nearly_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) + static_cast<T>(a.beta * 1.001); // beta is off by a thousandth
}

template <class T> void exchanged(const exchanged_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.k; ++j) {
      T sum(0);
      for (std::int64_t l = 0; l < a.k; ++l)
        sum += a.x(i, l) * a.weight(l, j); // the reference has weight.T
      a.out(i, j) = sum;
    }
}

template <class T> void unstrided(const unstrided_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = 2 * (a.x.stride(1) ? a.x.data[i * a.m + j] : a.x(i, j)); // strides are left out
}

template <class T> void short_of_one(const short_of_one_args<T> &a, oneop::Context &) {
  std::memset(static_cast<void *>(a.out.data), 0, static_cast<std::size_t>(a.n) * sizeof(T));
  for (std::int64_t i = 0; i + 1 < a.n; ++i) // the last is left out
    a.out(i) = a.x(i) + 1;
}

template <class T> void lost_nan(const lost_nan_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) > 0 ? a.x(i) : T(0); // a comparison with NaN is false
}

template <class T> void racing(const racing_args<T> &a, oneop::Context &) {
  static T shared[1 << 17]; // one for all calls
  for (std::int64_t i = 0; i < a.n; ++i)
    shared[i] = a.x(i);
  std::this_thread::sleep_for(std::chrono::microseconds(100)); // other callers come in between on any machine
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = 3 * shared[i];
}

template <class T> void keeping(const keeping_args<T> &a, oneop::Context &) {
  volatile char *kept = static_cast<char *>(std::malloc(48)); // never given back
  kept[0] = 1;
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i);
}

template <class T> void crashing(const crashing_args<T> &a, oneop::Context &) {
  if (a.n == 0)
    std::abort(); // a size of 0 was not thought of
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = -a.x(i);
}

template <class T> void summed(const summed_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = a.x(i, j) * a.x(i, j);
}

template <class T> void summed_grad(const summed_grad_args<T> &a, oneop::Context &) {
  const bool expanded = a.grad.stride(0) == 0 && a.grad.stride(1) == 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j) // a gradient with stride 0 is read as if it were contiguous
      a.grad_x(i, j) = 2 * a.x(i, j) * (expanded && i + j ? T(0) : a.grad(i, j));
}

template <class T> void far(const far_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) - (i < 1 << 14 ? T(1) : T(0)); // an index that is too short for long calls
}

template <class T> void in_pieces(const in_pieces_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.n, 10000, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      a.out(i) = a.x(i) + (begin == 0 ? T(2) : T(1)); // only the first piece is right
  });
}

template <class T> void branching(const branching_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) + (a.n > 20 ? T(1) : T(2));
}
