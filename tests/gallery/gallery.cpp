// The kernels of gallery.py in C++.
#include "cube.h"
#include "gradient_counts.h"
#include "linear.h"
#include "linear_grad.h"
#include "moments.h"
#include "moments_grad.h"
#include "outer.h"
#include "outer_grad.h"
#include "pick.h"
#include "pick_grad.h"
#include "positive.h"
#include "soft.h"
#include "soft_grad.h"
#include "take.h"
#include "take_grad.h"
#include "total.h"
#include "windows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

// What the gradient kernel of linear computed since the library was loaded, one count an input.
static std::atomic<std::int64_t> gradients[3];

template <class T> void gradient_counts(const gradient_counts_args<T> &a, oneop::Context &) {
  for (int i = 0; i < 3; ++i)
    a.out(i) = gradients[i];
}

template <class T> void cube(const cube_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.x.numel(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      a.out.data[i] = a.x.data[i] * a.x.data[i] * a.x.data[i] + static_cast<T>(a.alpha);
  });
}

template <class T> void linear(const linear_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (std::int64_t p = 0; p < a.k; ++p)
        sum += a.x(i, p) * a.weight(j, p);
      a.out(i, j) = static_cast<T>(a.alpha) * sum + (a.bias ? static_cast<T>(a.beta) * a.bias(j) : T(0));
    }
}

template <class T> void linear_grad(const linear_grad_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  if (a.needs_x) {
    ++gradients[0];
    for (std::int64_t i = 0; i < a.n; ++i)
      for (std::int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (std::int64_t j = 0; j < a.m; ++j)
          sum += a.grad(i, j) * a.weight(j, p);
        a.grad_x(i, p) = alpha * sum;
      }
  }
  if (a.needs_weight) {
    ++gradients[1];
    for (std::int64_t j = 0; j < a.m; ++j)
      for (std::int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (std::int64_t i = 0; i < a.n; ++i)
          sum += a.grad(i, j) * a.x(i, p);
        a.grad_weight(j, p) = alpha * sum;
      }
  }
  if (a.needs_bias) {
    ++gradients[2];
    for (std::int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (std::int64_t i = 0; i < a.n; ++i)
        sum += a.grad(i, j);
      a.grad_bias(j) = beta * sum;
    }
  }
}

template <class T> void total(const total_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.out.numel(); ++i) {
    T sum = 0;
    for (const auto &x : a.xs)
      sum += x.data[i] * x.data[i];
    a.out.data[i] = a.scale() * sum;
  }
}

template <class Float, class Int> void take(const take_args<Float, Int> &a, oneop::Context &ctx) {
  for (std::int64_t i = 0; i < a.k; ++i) {
    const auto row = static_cast<std::int64_t>(a.index(i));
    if (row < 0 || row >= a.n)
      ctx.fail("index " + std::to_string(row) + " is outside [0, " + std::to_string(a.n) + ")");
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = a.x(row, j);
  }
}

template <class Float, class Int> void take_grad(const take_grad_args<Float, Int> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  std::fill_n(a.grad_x.data, a.grad_x.numel(), Float(0));
  for (std::int64_t i = 0; i < a.k; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.grad_x(static_cast<std::int64_t>(a.index(i)), j) += a.grad(i, j);
}

template <class Float, class Int> void pick(const pick_args<Float, Int> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.k; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.out(i, j) = a.x(static_cast<std::int64_t>(a.index(i)), j) * a.scale(j);
}

template <class Float, class Int> void pick_grad(const pick_grad_args<Float, Int> &a, oneop::Context &) {
  if (a.needs_x)
    std::fill_n(a.grad_x.data, a.grad_x.numel(), Float(0));
  if (a.needs_scale)
    std::fill_n(a.grad_scale.data, a.grad_scale.numel(), Float(0));
  for (std::int64_t i = 0; i < a.k; ++i)
    for (std::int64_t j = 0; j < a.m; ++j) {
      const auto row = static_cast<std::int64_t>(a.index(i));
      if (a.needs_x)
        a.grad_x(row, j) += a.grad(i, j) * a.scale(j);
      if (a.needs_scale)
        a.grad_scale(j) += a.grad(i, j) * a.x(row, j);
    }
}

template <class T> void moments(const moments_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    T sum = 0, squares = 0;
    std::int64_t largest = 0;
    for (std::int64_t j = 0; j < a.m; ++j) {
      sum += a.x(i, j);
      largest = a.x(i, j) > a.x(i, largest) ? j : largest;
    }
    const T mean = sum / static_cast<T>(a.m);
    for (std::int64_t j = 0; j < a.m; ++j)
      squares += (a.x(i, j) - mean) * (a.x(i, j) - mean);
    a.mean(i) = mean;
    a.largest(i) = largest;
    a.spread(i) = squares / static_cast<T>(a.m);
  }
}

template <class T> void moments_grad(const moments_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j)
      a.grad_x(i, j) = (a.grad_mean(i) + 2 * a.grad_spread(i) * (a.x(i, j) - a.mean(i))) / static_cast<T>(a.m);
}

template <class T> void soft(const soft_args<T> &a, oneop::Context &) {
  for (std::int64_t b = 0; b < a.batch; ++b) {
    T largest = a.n > 0 ? a.x(b, 0) : T(0), sum = 0;
    for (std::int64_t i = 0; i < a.n; ++i)
      largest = std::max(largest, a.x(b, i));
    for (std::int64_t i = 0; i < a.n; ++i)
      sum += a.out(b, i) = std::exp(a.x(b, i) - largest);
    for (std::int64_t i = 0; i < a.n; ++i)
      a.out(b, i) /= sum;
  }
}

template <class T> void soft_grad(const soft_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    T sum = 0;
    for (std::int64_t i = 0; i < a.n; ++i)
      sum += a.grad(b, i) * a.out(b, i);
    for (std::int64_t i = 0; i < a.n; ++i)
      a.grad_x(b, i) = a.out(b, i) * (a.grad(b, i) - sum);
  }
}

template <class T> void positive(const positive_args<T> &a, oneop::Context &ctx) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    count += a.x(i) > 0;
  const auto out = ctx.resize(a.out, {count});
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.x(i) > 0)
      out(at++) = a.x(i) * a.x(i);
}

template <class T> void outer(const outer_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t p = 0; p < a.k; ++p)
      for (std::int64_t j = 0; j < a.m; ++j)
        a.out(i, p, j) = a.x(i, j) * a.y(j, p);
}

template <class T> void outer_grad(const outer_grad_args<T> &a, oneop::Context &) {
  if (a.needs_x)
    for (std::int64_t i = 0; i < a.n; ++i)
      for (std::int64_t j = 0; j < a.m; ++j) {
        T sum = 0;
        for (std::int64_t p = 0; p < a.k; ++p)
          sum += a.grad(i, p, j) * a.y(j, p);
        a.grad_x(i, j) = sum;
      }
  if (a.needs_y)
    for (std::int64_t j = 0; j < a.m; ++j)
      for (std::int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (std::int64_t i = 0; i < a.n; ++i)
          sum += a.grad(i, p, j) * a.x(i, j);
        a.grad_y(j, p) = sum;
      }
}

template <class T> void windows(const windows_args<T> &a, oneop::Context &) {
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t i = 0; i < a.out.size(1); ++i) {
      T sum = 0;
      for (std::int64_t p = 0; p < a.size; ++p)
        sum += a.x(b, i * a.stride + p) * a.x(b, i * a.stride + p);
      a.out(b, i) = sum;
    }
}
