// The kernels of contract_operators.py, in C++.
#include "both.h"
#include "choose.h"
#include "choose_grad.h"
#include "dot.h"
#include "find.h"
#include "gather.h"
#include "odd_names.h"
#include "scaled_linear.h"
#include "scaled_linear_grad.h"
#include "show.h"
#include "spread.h"
#include "total.h"
#include "total_grad.h"
#include "transpose.h"
#include "trouble.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

template <class T> void scaled_linear(const scaled_linear_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < a.m; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < a.k; ++p)
          sum += static_cast<double>(a.x(i, p)) * static_cast<double>(a.weight(j, p));
        sum *= a.alpha;
        if (a.bias)
          sum += a.beta * static_cast<double>(a.bias(j));
        a.out(i, j) = static_cast<T>(sum);
      }
  });
}

template <class T> void scaled_linear_grad(const scaled_linear_grad_args<T> &a, oneop::Context &) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  if (a.needs_x)
    for (int64_t i = 0; i < a.n; ++i)
      for (int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (int64_t j = 0; j < a.m; ++j)
          sum += a.grad(i, j) * a.weight(j, p);
        a.grad_x(i, p) = alpha * sum;
      }
  if (a.needs_weight)
    for (int64_t j = 0; j < a.m; ++j)
      for (int64_t p = 0; p < a.k; ++p) {
        T sum = 0;
        for (int64_t i = 0; i < a.n; ++i)
          sum += a.grad(i, j) * a.x(i, p);
        a.grad_weight(j, p) = alpha * sum;
      }
  if (a.needs_bias)
    for (int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (int64_t i = 0; i < a.n; ++i)
        sum += a.grad(i, j);
      a.grad_bias(j) = beta * sum;
    }
}

namespace {

std::string shown(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}
std::string shown(std::int64_t value) { return std::to_string(value); }
std::string shown(bool value) { return value ? "true" : "false"; }
std::string shown(std::string_view value) { return '"' + std::string(value) + '"'; }
template <class Values> std::string shown_list(const Values &values) {
  std::string text = "[";
  for (const auto &value : values)
    text += shown(value) + ";";
  for (std::int64_t index = 0; index < values.size(); ++index)
    text += shown(values[index]) + ";";
  return text + "]";
}
std::string shown(const oneop::List<double> &value) { return shown_list(value); }
std::string shown(const oneop::List<std::int64_t> &value) { return shown_list(value); }
std::string shown(const oneop::Strings &value) { return shown_list(value); }
template <class Value> std::string shown(const std::optional<Value> &value) { return value ? shown(*value) : "none"; }

} // namespace

template <class T> void show(const show_args<T> &a, oneop::Context &ctx) {
  const std::string text = shown(a.a_float) + " " + shown(a.an_int) + " " + shown(a.a_bool) + " " + shown(a.a_str) +
                           " " + shown(a.a_choice) + " " + shown(a.floats) + " " + shown(a.ints) + " " +
                           shown(a.strings) + " " + shown(a.maybe_float) + " " + shown(a.maybe_int) + " " +
                           shown(a.maybe_bool) + " " + shown(a.maybe_str) + " " + shown(a.maybe_floats) + " " +
                           shown(a.maybe_ints) + " " + shown(a.maybe_strings);
  const auto out = ctx.resize(a.out, {static_cast<int64_t>(text.size())});
  std::memcpy(out.data, text.data(), text.size());
}

template <class T> void total(const total_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.batch, 2, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t i = 0; i < a.n; ++i) {
        T sum = 0;
        for (const auto &x : a.xs)
          sum += x(b, i);
        a.out(b, i) = static_cast<T>(a.scale) * sum;
      }
  });
}

template <class T> void total_grad(const total_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_xs)
    return;
  for (int64_t e = 0; e < a.grad_xs.size(); ++e)
    for (int64_t i = 0; i < a.grad_xs[e].numel(); ++i)
      a.grad_xs[e].data[i] = static_cast<T>(a.scale) * a.grad.data[i] + static_cast<T>(e);
}

template <class T> void choose(const choose_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.mask(i) ? a.a(i) * static_cast<T>(a.times(i)) : a.b(i);
}

template <class T> void choose_grad(const choose_grad_args<T> &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i) {
    if (a.needs_a)
      a.grad_a(i) = a.mask(i) ? a.grad(i) * static_cast<T>(a.times(i)) : T(0);
    if (a.needs_b)
      a.grad_b(i) = a.mask(i) ? T(0) : a.grad(i);
  }
}

template <class T> void find(const find_args<T> &a, oneop::Context &ctx) {
  int64_t count = 0, rows = 0;
  for (const T value : a.x)
    count += value != 0;
  if (a.mode == 1)
    return;
  if (a.mode == 2)
    (void)ctx.resize(a.places, {count, 3});
  if (a.mode == 3)
    (void)ctx.resize(a.places, {-1, 2});
  if (a.mode == 4)
    (void)ctx.resize(a.rows, {});
  if (a.mode == 5)
    (void)ctx.resize(a.places, {count});
  if (a.mode == 6)
    (void)ctx.resize(a.places, {INT64_C(1) << 40, 2});
  const auto places = ctx.resize(a.places, {count, 2});
  const auto values = ctx.resize(a.values, {a.mode == 7 ? count + 1 : count});
  int64_t at = 0;
  for (int64_t i = 0; i < a.n; ++i) {
    const int64_t before = at;
    for (int64_t j = 0; j < a.m; ++j) {
      if (a.x(i, j) == 0)
        continue;
      places(at, 0) = i;
      places(at, 1) = j;
      values(at++) = a.x(i, j);
    }
    rows += at > before;
  }
  a.rows() = rows;
}

template <class T> void spread(const spread_args<T> &a, oneop::Context &ctx) {
  const auto out = ctx.resize(a.out, {a.batch, a.times, 2});
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < a.times; ++i) {
      out(b, i, 0) = a.x(b, 0);
      out(b, i, 1) = a.x(b, a.n - 1);
    }
}

template <class T> void transpose(const transpose_args<T> &a, oneop::Context &) {
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < a.n; ++i)
      for (int64_t j = 0; j < a.m; ++j)
        a.out(b, j, i) = a.x(b, i, j) + (a.y ? a.y(j) : T(0));
}

template <class Float, class Int> void gather(const gather_args<Float, Int> &a, oneop::Context &ctx) {
  for (int64_t i = 0; i < a.m; ++i) {
    const int64_t row = a.index(i);
    if (row < 0 || row >= a.n)
      ctx.fail("index " + std::to_string(row) + " is not below " + std::to_string(a.n));
    for (int64_t p = 0; p < a.k; ++p)
      a.out(i, p) = a.x(row, p);
  }
}

void both(const both_args &a, oneop::Context &) {
  for (int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.a(i) && a.b(i);
}

template <class T> void dot(const dot_args<T> &a, oneop::Context &ctx) {
  float *const products = ctx.scratch<float>(a.n);
  if (reinterpret_cast<std::uintptr_t>(products) % 64 != 0)
    ctx.fail("scratch memory is not aligned");
  for (int64_t i = 0; i < a.n; ++i)
    products[i] = static_cast<float>(a.x(i)) * a.y(i);
  float sum = 0;
  for (int64_t i = 0; i < a.n; ++i)
    sum += products[i];
  a.out() = sum;
}

template <class T> void odd_names(const odd_names_args<T> &a, oneop::Context &) {
  for (int64_t t = 0; t < a.T; ++t)
    for (int64_t c = 0; c < a.C * a.x; ++c)
      for (int64_t r = 0; r < a.args; ++r)
        a.out(r, c, t) = a.ctx ? a.ctx() : a.call(t, c % a.C, r);
}

template <class T> void trouble(const trouble_args<T> &a, oneop::Context &ctx) {
  const auto parallel = [&](auto what) { ctx.parallel_for(0, 100, [&](int64_t, int64_t) { what(); }); };
  if (a.mode == "fail")
    ctx.fail("n is " + std::to_string(a.n));
  if (a.mode == "throw")
    throw std::runtime_error("100% broken");
  if (a.mode == "throw int")
    throw 3;
  if (a.mode == "no memory")
    throw std::bad_alloc();
  if (a.mode == "parallel fail")
    parallel([&] { ctx.fail("in parallel"); });
  if (a.mode == "parallel throw")
    parallel([&] { throw std::runtime_error("in parallel"); });
  if (a.mode == "parallel throw int")
    parallel([&] { throw 3; });
  if (a.mode == "scratch")
    ctx.scratch(INT64_C(1) << 50);
  if (a.mode == "scratch count")
    ctx.scratch<double>(INT64_MAX / 4);
  if (a.mode == "scratch negative")
    ctx.scratch(-1);
  if (a.mode == "long")
    ctx.fail(std::string(5000, 'x'));
  if (a.mode == "long characters") {
    std::string many(static_cast<std::size_t>(a.n), 'x');
    for (int i = 0; i < 1000; ++i)
      many += "\xe6\x97\xa5";
    ctx.fail(many);
  }
  if (a.mode == "empty")
    ctx.fail("");
  for (int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i);
}
