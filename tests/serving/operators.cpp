#include <algorithm>
#include <atomic>
#include <cmath>

static std::atomic<std::int64_t> count{0};

template <class T> void scaled(const scaled_args<T> &a, oneop::Context &ctx) {
  ++count;
  if (a.x.numel() > 0 && std::isnan(a.x.data[0]))
    ctx.fail("x begins with a NaN");
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.m; ++j) {
      T sum = 0;
      for (std::int64_t p = 0; p < a.k; ++p)
        sum += a.x(i, p) * a.weight(j, p);
      sum = static_cast<T>(a.alpha) * sum + (a.bias ? a.bias(j) : T(0));
      a.out(i, j) = a.mode == "relu" ? std::max(sum, T(0)) : sum;
    }
}

template <class T> void spread(const spread_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    a.least(i) = a.greatest(i) = a.xs[0](i, 0);
    for (const auto &x : a.xs)
      for (std::int64_t j = 0; j < a.m; ++j) {
        a.least(i) = std::min(a.least(i), x(i, j));
        a.greatest(i) = std::max(a.greatest(i), x(i, j));
      }
  }
}

template <class T> void kept(const kept_args<T> &a, oneop::Context &ctx) {
  const auto chosen = [&](T value) { return value > static_cast<T>(a.above); };
  const auto out = ctx.resize(a.out, {std::count_if(a.x.data, a.x.data + a.n, chosen)});
  std::copy_if(a.x.data, a.x.data + a.n, out.data, chosen);
}

template <class T> void runs(const runs_args<T> &a, oneop::Context &) { a.out() = count; }
