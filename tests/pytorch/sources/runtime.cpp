// Kernels of runtime_operators.py.
#include "exponential.h"
#include "exponential_grad.h"
#include "find.h"
#include "gather.h"
#include "largest.h"
#include "muladd.h"
#include "muladd_grad.h"
#include "native.h"
#include "parts.h"
#include "pieces.h"
#include "product.h"
#include "rows.h"
#include "shifted.h"
#include "show.h"
#include "tail.h"
#include "total.h"
#include "total_grad.h"
#include "transpose.h"
#include "trouble.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

template <class T> void muladd(const muladd_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha);
  for (int64_t i = 0; i < a.x.numel(); ++i)
    a.out.data[i] = alpha * a.x.data[i] * a.w.data[i];
}

template <class T> void muladd_grad(const muladd_grad_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha);
  for (int64_t i = 0; i < a.x.numel(); ++i) {
    if (a.needs_x)
      a.grad_x.data[i] = alpha * a.grad.data[i] * a.w.data[i];
    if (a.needs_w)
      a.grad_w.data[i] = alpha * a.grad.data[i] * a.x.data[i];
  }
}

template <class T> void product(const product_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) * a.y(i) * (a.z ? a.z(i) : T(1));
}

template <class T> void shifted(const shifted_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i)
    for (int64_t j = 0; j < a.k; ++j)
      a.out(i, j) = std::sin(a.x(i, j)) + (a.bias ? a.bias(j) : T(0));
}

template <class T> void total(const total_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.out.numel(); ++i) {
    T sum = 0;
    for (const auto &x : a.xs)
      sum += x.data[i];
    a.out.data[i] = static_cast<T>(a.scale) * sum;
  }
}

template <class T> void total_grad(const total_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_xs)
    return;
  for (const auto &out : a.grad_xs)
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data[i] = static_cast<T>(a.scale) * a.grad.data[i];
}

template <class T> void largest(const largest_args<T> &a, oneop::Context &context) {
  if (a.n == 0)
    context.fail("there is no largest of no values");
  const auto at = std::max_element(a.x.begin(), a.x.end());
  a.value() = *at;
  a.index() = at - a.x.begin();
}

template <class T> void exponential(const exponential_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.x.numel(); ++i)
    a.out.data[i] = std::exp(a.x.data[i]);
}

template <class T> void exponential_grad(const exponential_grad_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.x.numel(); ++i)
    a.grad_x.data[i] = a.grad.data[i] * a.out.data[i];
}

template <class T> void parts(const parts_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i) {
    const T low = std::min(a.x(i), static_cast<T>(a.bound)), high = std::max(a.x(i), static_cast<T>(a.bound));
    a.low(i) = low * low;
    a.high(i) = high * high * high;
  }
}

template <class T> void find(const find_args<T> &a, oneop::Context &context) {
  const int64_t count = a.n - std::count(a.x.begin(), a.x.end(), T(0));
  if (a.mode == "forget")
    return;
  if (a.mode == "huge")
    (void)context.resize(a.values, {INT64_C(1) << 50});
  if (a.mode == "beyond")
    (void)context.resize(a.values, {INT64_MAX});
  if (a.mode == "twice" || a.mode == "again")
    (void)context.resize(a.values, {a.mode == "twice" ? count + 1 : count});
  const auto values = context.resize(a.values, {a.mode == "differ" ? count + 1 : a.mode == "negative" ? -1 : count});
  const auto places = context.resize(a.places, {count});
  for (int64_t i = 0, k = 0; i < a.n; ++i)
    if (a.x(i) != T(0)) {
      places(k) = i;
      values(k++) = a.x(i);
    }
}

template <class T> void transpose(const transpose_args<T> &a, oneop::Context &) {
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < a.n; ++i)
      for (int64_t j = 0; j < a.m; ++j)
        a.out(b, j, i) = a.x(b, i, j);
}

template <class T, class I> void gather(const gather_args<T, I> &a, oneop::Context &context) {
  for (int64_t i = 0; i < a.m; ++i) {
    const auto row = static_cast<int64_t>(a.index(i));
    if (row < 0 || row >= a.n)
      context.fail("index " + std::to_string(row) + " is out of range");
    for (int64_t j = 0; j < a.k; ++j)
      a.out(i, j) = a.x(row, j);
  }
}

template <class T> void rows(const rows_args<T> &a, oneop::Context &context) {
  T *sums = context.scratch<T>(a.n);
  if (reinterpret_cast<std::uintptr_t>(sums) % 64 != 0)
    context.fail("scratch memory is not aligned");
  context.scratch(0);
  context.parallel_for(0, a.n, a.grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sums[i] = 0;
      for (int64_t j = 0; j < a.k; ++j)
        sums[i] += a.x(i, j);
    }
  });
  std::copy(sums, sums + a.n, a.out.data);
}

template <class T> void pieces(const pieces_args<T> &a, oneop::Context &context) {
  context.parallel_for(0, a.n, a.grain,
                       [&](int64_t begin, int64_t end) { std::fill(a.out.data + begin, a.out.data + end, begin); });
}

template <class T> void trouble(const trouble_args<T> &a, oneop::Context &context) {
  if (a.mode == "fail")
    context.fail("n is " + std::to_string(a.n));
  if (a.mode == "throw")
    throw std::runtime_error("thrown");
  if (a.mode == "parallel")
    context.parallel_for(0, a.n, [&](int64_t begin, int64_t) { context.fail("piece " + std::to_string(begin)); });
  if (a.mode == "bytes")
    context.fail("a \xff byte");
  if (a.mode == "empty")
    context.fail("");
  if (a.mode == "long") {
    std::string many(static_cast<std::size_t>(a.n), 'x');
    for (int i = 0; i < 1000; ++i)
      many += "\xe6\x97\xa5";
    context.fail(many);
  }
  std::copy(a.x.begin(), a.x.end(), a.out.data);
}

template <class T> void tail(const tail_args<T> &a, oneop::Context &) { std::copy(a.x.begin(), a.x.end(), a.out.data); }

template <class T> void native(const native_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i)
    a.out(i) = 2 * a.x(i);
}

namespace {

std::string number(double value) {
  std::string digits = std::to_string(value);
  return digits.substr(0, digits.find_last_not_of('0') + 1);
}

template <class Values> std::string listed(const Values &values) {
  std::string result = "[";
  for (const auto &value : values)
    result += (result.size() > 1 ? " " : "") + number(static_cast<double>(value));
  return result + "]";
}

} // namespace

template <class T> void show(const show_args<T> &a, oneop::Context &context) {
  std::string text = number(a.real) + ";" + std::to_string(a.whole) + ";" + (a.flag ? "true" : "false") + ";";
  text += std::string(a.word) + ";" + std::string(a.choice) + ";" + listed(a.reals) + ";" + listed(a.wholes) + ";";
  for (const auto word : a.words)
    text += "'" + std::string(word) + "'";
  text += ";" + (a.maybe_real ? number(*a.maybe_real) : "none") + ";";
  text += a.maybe_word ? std::string(*a.maybe_word) : std::string("none");
  text += ";" + (a.maybe_wholes ? listed(*a.maybe_wholes) : "none");
  const auto out = context.resize(a.out, {static_cast<int64_t>(text.size())});
  std::copy(text.begin(), text.end(), out.data);
}
