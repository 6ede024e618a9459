// The kernels of many.py.
#include "affine.h"
#include "attributes.h"
#include "doubled.h"
#include "failing.h"
#include "gather.h"
#include "labels.h"
#include "nested.h"
#include "positive.h"
#include "required.h"
#include "row_sums.h"
#include "totals.h"
#include "windows.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace {

double codes(std::string_view text) {
  double sum = 0;
  for (char letter : text)
    sum += static_cast<unsigned char>(letter);
  return sum;
}

template <class List> double weighted(const List &list) {
  double sum = 0;
  for (std::int64_t i = 0; i < list.size(); ++i)
    sum += static_cast<double>(list[i]) * static_cast<double>(i + 1);
  return sum;
}

} // namespace

template <class T> void attributes(const attributes_args<T> &a, oneop::Context &) {
  double counts = 0;
  if (a.maybe_counts)
    for (std::int64_t value : *a.maybe_counts)
      counts += static_cast<double>(value);
  const double values[] = {a.ratio,
                           static_cast<double>(a.count),
                           a.flag ? 1.0 : 0.0,
                           codes(a.text),
                           codes(a.mode),
                           static_cast<double>(a.level),
                           static_cast<double>(a.ratios.size()),
                           weighted(a.ratios),
                           static_cast<double>(a.counts.size()),
                           weighted(a.counts),
                           a.maybe_ratio ? *a.maybe_ratio : -1.0,
                           a.maybe_count ? static_cast<double>(*a.maybe_count) : -1.0,
                           a.maybe_text ? codes(*a.maybe_text) : -1.0,
                           a.maybe_counts ? counts : -1.0};
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < 14; ++j)
      a.out(i, j) = a.x(i) + static_cast<T>(values[j]);
}

template <class T> void labels(const labels_args<T> &a, oneop::Context &) {
  double sum = 0, weight = 1;
  for (std::string_view name : a.names)
    sum += codes(name) * weight++;
  for (std::int64_t i = 0; i < a.n; ++i) {
    a.out(i, 0) = a.x(i) + static_cast<T>(a.names.size());
    a.out(i, 1) = a.x(i) + static_cast<T>(sum);
  }
}

template <class T> void required(const required_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = static_cast<T>(a.scale) * a.x(i);
}

template <class T> void affine(const affine_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < a.k; ++j) {
        const T y = static_cast<T>(a.alpha) * (a.factor ? a.x(i, j) * a.factor(j) : a.x(i, j));
        a.out(i, j) = a.shift ? y + a.shift(j) : y;
      }
  });
}

template <class T> void totals(const totals_args<T> &a, oneop::Context &) {
  a.count(0) = a.xs.size();
  for (std::int64_t i = 0; i < a.n; ++i) {
    for (std::int64_t j = 0; j < a.k; ++j) {
      T sum = 0;
      for (const auto &x : a.xs)
        sum += x(i, j);
      a.total(i, j) = sum;
      if (j == 0 || sum > a.largest(i))
        a.largest(i) = sum;
    }
  }
}

template <class T> void positive(const positive_args<T> &a, oneop::Context &ctx) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    count += a.x(i) > 0;
  const auto values = ctx.resize(a.values, {count});
  const auto positions = ctx.resize(a.positions, {count});
  for (std::int64_t i = 0, at = 0; i < a.n; ++i)
    if (a.x(i) > 0) {
      values(at) = a.x(i);
      positions(at++) = i;
    }
}

template <class T> void windows(const windows_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.out.size(0); ++i)
    for (std::int64_t j = 0; j < a.w; ++j) {
      T sum = 0;
      for (std::int64_t r = 0; r < a.kernel; ++r)
        sum += a.x(i * a.stride + r, j);
      a.out(i, j) = a.out(i, j + a.w) = sum;
    }
}

template <class T> void row_sums(const row_sums_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.batch; ++i) {
    T sum = 0;
    for (std::int64_t j = 0; j < a.d; ++j)
      sum += a.x(i, j);
    a.out(i) = sum;
  }
}

template <class T, class I> void gather(const gather_args<T, I> &a, oneop::Context &ctx) {
  for (std::int64_t i = 0; i < a.k; ++i) {
    if (a.index(i) < 0 || a.index(i) >= a.n)
      ctx.fail("gather: an index is outside of x");
    a.out(i) = a.x(a.index(i));
  }
}

template <class T> void doubled(const doubled_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) + a.x(i);
}

template <class T> void failing(const failing_args<T> &a, oneop::Context &ctx) {
  switch (a.how) {
  case 1:
    ctx.fail("the kernel says no");
  case 2:
    throw std::runtime_error("thrown by the kernel");
  case 3:
    throw 7;
  case 4:
    ctx.parallel_for(0, 1000, [&](std::int64_t begin, std::int64_t) {
      if (begin > 0)
        throw std::runtime_error("thrown in a loop");
    });
    break;
  case 5:
    return; // without a size for out
  case 6:
    ctx.scratch(INT64_MAX);
    break;
  case 7:
    ctx.fail("a \xff byte, half of \xe6\x97 and all of \xe6\x97\xa5");
  case 8:
    (void)ctx.resize(a.out, {a.n + 1});
    break;
  case 9:
    ctx.fail("");
  case 10:
    (void)ctx.resize(a.out, {a.n});
    break;
  default:
    break;
  }
  const auto out = ctx.resize(a.out, {a.n});
  std::copy(a.x.begin(), a.x.end(), out.begin());
}

template <class T> void nested(const nested_args<T> &a, oneop::Context &ctx) {
  T *rows = ctx.scratch<T>(a.n * a.m);
  T *ones = ctx.scratch<T>(1);
  *ones = 1;
  if (reinterpret_cast<std::uintptr_t>(rows) % 64 != 0 || reinterpret_cast<std::uintptr_t>(ones) % 64 != 0)
    ctx.fail("scratch memory is not aligned to 64 bytes");
  ctx.parallel_for(0, a.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      ctx.parallel_for(0, a.m, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t j = first; j < last; ++j)
          rows[i * a.m + j] = a.x(i, j) + *ones;
      });
  });
  std::copy(rows, rows + a.n * a.m, a.out.begin());
}
