// The kernels of plugins.py.
#include "affine.h"
#include "attributes.h"
#include "doubled.h"
#include "failing.h"
#include "positive.h"
#include "quantised.h"
#include "row_sums.h"
#include "scratching.h"
#include "sizes.h"
#include "take.h"
#include "totals.h"
#include "windows.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

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

template <class List> double sum_of(const List &list) {
  double sum = 0;
  for (const auto value : list)
    sum += static_cast<double>(value);
  return sum;
}

template <class View> void count(const View &view) {
  std::int64_t number = 0;
  for (auto &item : view)
    item = static_cast<std::decay_t<decltype(item)>>(number++);
}

} // namespace

template <class T> void attributes(const attributes_args<T> &a, oneop::Context &) {
  const double values[] = {a.needed,
                           a.ratio,
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
                           a.maybe_flag ? (*a.maybe_flag ? 1.0 : 0.0) : -1.0,
                           a.maybe_text ? codes(*a.maybe_text) : -1.0,
                           a.maybe_ratios ? sum_of(*a.maybe_ratios) : -1.0,
                           a.maybe_counts ? sum_of(*a.maybe_counts) : -1.0};
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < 17; ++j)
      a.out(i, j) = a.x(i) + static_cast<T>(values[j]);
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
      T sum = a.shift ? a.shift(j) : T(0);
      for (const auto &x : a.xs)
        sum += x(i, j);
      a.total(i, j) = sum;
      if (j == 0 || sum > a.largest(i))
        a.largest(i) = sum;
    }
  }
}

template <class T> void positive(const positive_args<T> &a, oneop::Context &ctx) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    found += a.x(i) > 0;
  const auto values = ctx.resize(a.values, {found});
  const auto positions = ctx.resize(a.positions, {found});
  const auto pairs = ctx.resize(a.pairs, {2, a.n - found});
  for (std::int64_t i = 0, at = 0, other = 0; i < a.n; ++i)
    if (a.x(i) > 0) {
      values(at) = a.x(i);
      positions(at++) = i;
    } else {
      pairs(0, other) = pairs(1, other) = a.x(i);
      ++other;
    }
}

template <class T> void sizes(const sizes_args<T> &a, oneop::Context &) {
  count(a.floors);
  count(a.chosen);
  count(a.mixed);
  count(a.fixed);
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
    a.out(i) = a.scale ? sum * a.scale() : sum;
  }
}

template <class T, class I> void take(const take_args<T, I> &a, oneop::Context &ctx) {
  for (std::int64_t i = 0; i < a.k; ++i) {
    if (a.index(i) < 0 || a.index(i) >= a.n)
      ctx.fail("take: an index is outside of x");
    a.out(i) = a.x(a.index(i));
  }
}

template <class T> void doubled(const doubled_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) + a.x(i);
}

void quantised(const quantised_args &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = static_cast<std::int8_t>(-a.x(i));
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
    return; // without a size for out
  case 5:
    ctx.scratch(INT64_MAX);
    break;
  case 6:
    (void)ctx.resize(a.out, {2 * a.n});
    break;
  case 7:
    (void)ctx.resize(a.out, {a.n});
    (void)ctx.resize(a.out, {a.n - 1});
    break;
  default:
    break;
  }
  const auto out = ctx.resize(a.out, {a.n});
  std::copy(a.x.begin(), a.x.end(), out.begin());
}

template <class T> void scratching(const scratching_args<T> &a, oneop::Context &ctx) {
  std::vector<T *> blocks;
  for (std::int64_t b = 0; b < a.blocks; ++b) {
    blocks.push_back(ctx.scratch<T>(a.size));
    if (reinterpret_cast<std::uintptr_t>(blocks.back()) % 64 != 0)
      ctx.fail("scratch memory is not aligned to 64 bytes");
    std::fill_n(blocks.back(), a.size, T(1));
  }
  for (std::int64_t i = 0; i < a.n; ++i) {
    T sum = a.x(i);
    for (const T *block : blocks)
      sum += block[i % a.size];
    a.out(i) = sum;
  }
}
