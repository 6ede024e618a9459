// The kernels of cuda_operators.py: each is the function that it would be in C++, with launches on the stream in it.
#include "axpby.h"
#include "blend.h"
#include "extremes.h"
#include "failing.h"
#include "gather_columns.h"
#include "polynomial.h"
#include "positive.h"
#include "slow.h"
#include "spread.h"
#include "spread_grad.h"
#include "tally.h"
#include "whereabouts.h"

#include <limits>

namespace {

constexpr int threads = 256;

unsigned blocks(std::int64_t work) {
  const std::int64_t needed = (work + threads - 1) / threads;
  return static_cast<unsigned>(needed < 65535 ? needed : 65535);
}

__device__ std::int64_t first() { return blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; }
__device__ std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// What sums are kept in: more than the elements have, where they have little.
template <class T> using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The sum over a block's threads, in each of them.
template <class T> __device__ T block_sum(T value) {
  __shared__ T partial[32];
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_down_sync(0xffffffffu, value, distance);
  if (threadIdx.x % 32 == 0)
    partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
    total += partial[warp];
  __syncthreads();
  return total;
}

} // namespace

// ---- axpby

namespace {
template <class T> __global__ void axpby_kernel(const axpby_args<T> a) {
  for (std::int64_t i = first(); i < a.x.numel(); i += step())
    a.out.data[i] =
        static_cast<T>(static_cast<Wide<T>>(a.alpha) * a.x.data[i] + static_cast<Wide<T>>(a.beta) * a.y.data[i]);
}
} // namespace

template <class T> void axpby(const axpby_args<T> &a, oneop::Context &ctx) {
  if (a.x.numel() > 0)
    axpby_kernel<<<blocks(a.x.numel()), threads, 0, ctx.stream()>>>(a);
}

// ---- extremes

namespace {
template <class T> __global__ void extremes_kernel(const extremes_args<T> a) {
  __shared__ Wide<T> best[threads];
  __shared__ std::int64_t place[threads];
  const std::int64_t row = blockIdx.x;
  Wide<T> total = 0, largest = -std::numeric_limits<Wide<T>>::infinity();
  std::int64_t where = a.m;
  for (std::int64_t j = threadIdx.x; j < a.m; j += threads) {
    const Wide<T> value = a.x(row, j);
    total += value;
    if (value > largest || where == a.m)
      largest = value, where = j;
  }
  total = block_sum(total);
  best[threadIdx.x] = largest;
  place[threadIdx.x] = where;
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  for (int t = 1; t < threads; ++t)
    if (place[t] < a.m && (best[t] > largest || (best[t] == largest && place[t] < where)))
      largest = best[t], where = place[t];
  a.total(row) = static_cast<T>(total);
  a.largest(row) = static_cast<T>(largest);
  a.where(row) = where;
}
} // namespace

template <class T> void extremes(const extremes_args<T> &a, oneop::Context &ctx) {
  if (a.m == 0)
    ctx.fail("a row without elements has no largest one");
  if (a.n > 0)
    extremes_kernel<<<static_cast<unsigned>(a.n), threads, 0, ctx.stream()>>>(a);
}

// ---- positive

namespace {
/// Each thread looks at a stretch of its own. `ends[t]` counts what the threads up to t found.
template <class T> __global__ void count_positive(const oneop::View<const T, 1> x, std::int64_t *ends) {
  const std::int64_t stretch = (x.size(0) + threads - 1) / threads, begin = threadIdx.x * stretch;
  std::int64_t count = 0;
  for (std::int64_t i = begin; i < x.size(0) && i < begin + stretch; ++i)
    count += x(i) > T(0);
  ends[threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int t = 1; t < threads; ++t)
      ends[t] += ends[t - 1];
}

template <class T>
__global__ void take_positive(const oneop::View<const T, 1> x, const std::int64_t *ends, const oneop::View<T, 1> values,
                              const oneop::View<std::int64_t, 1> places) {
  const std::int64_t stretch = (x.size(0) + threads - 1) / threads, begin = threadIdx.x * stretch;
  std::int64_t at = threadIdx.x == 0 ? 0 : ends[threadIdx.x - 1];
  for (std::int64_t i = begin; i < x.size(0) && i < begin + stretch; ++i)
    if (x(i) > T(0)) {
      values(at) = x(i);
      places(at++) = i;
    }
}
} // namespace

template <class T> void positive(const positive_args<T> &a, oneop::Context &ctx) {
  auto *ends = ctx.scratch<std::int64_t>(threads);
  count_positive<<<1, threads, 0, ctx.stream()>>>(a.x, ends);
  std::int64_t count = 0;
  ctx.check(cudaMemcpyAsync(&count, ends + threads - 1, sizeof count, cudaMemcpyDeviceToHost, ctx.stream()));
  ctx.check(cudaStreamSynchronize(ctx.stream()));
  const auto values = ctx.resize(a.values, {count});
  const auto places = ctx.resize(a.places, {count});
  take_positive<<<1, threads, 0, ctx.stream()>>>(a.x, ends, values, places);
}

// ---- blend

namespace {
template <class T>
__global__ void blend_kernel(const blend_args<T> a, const oneop::Array<oneop::View<const T, 1>, 8> others) {
  for (std::int64_t i = first(); i < a.n; i += step()) {
    T total = a.x(i);
    for (int o = 0; o < others.size(); ++o)
      total += others[o](i);
    a.out(i) = a.weight ? total * a.weight(i) : total;
  }
}
} // namespace

template <class T> void blend(const blend_args<T> &a, oneop::Context &ctx) {
  if (a.n > 0)
    blend_kernel<<<blocks(a.n), threads, 0, ctx.stream()>>>(a, oneop::Array<oneop::View<const T, 1>, 8>(a.others));
}

// ---- polynomial

namespace {
struct Terms {
  bool even, clip, moved;
  double offset;
};

template <class T>
__global__ void polynomial_kernel(const polynomial_args<T> a, const oneop::Array<double, 16> coefficients,
                                  const Terms terms) {
  for (std::int64_t i = first(); i < a.x.numel(); i += step()) {
    const T x = a.x.data[i], at = terms.even ? x * x : x;
    T result = 0;
    for (std::int64_t c = coefficients.size(); c-- > 0;)
      result = result * at + static_cast<T>(coefficients[c]);
    if (terms.moved)
      result += static_cast<T>(terms.offset);
    a.out.data[i] = terms.clip && result < T(0) ? T(0) : result;
  }
}
} // namespace

template <class T> void polynomial(const polynomial_args<T> &a, oneop::Context &ctx) {
  if (a.x.numel() == 0)
    return;
  const Terms terms{a.mode == "even", a.clip, a.offset.has_value(), a.offset.value_or(0.0)};
  const oneop::Array<double, 16> coefficients(a.coefficients);
  polynomial_kernel<<<blocks(a.x.numel()), threads, 0, ctx.stream()>>>(a, coefficients, terms);
}

// ---- gather_columns

namespace {
template <class T> __global__ void gather_kernel(const gather_columns_args<T> a) {
  for (std::int64_t at = first(); at < a.n * a.k; at += step()) {
    const std::int64_t i = at / a.k, j = at % a.k;
    a.out(i, j) = a.x(i, a.index(j));
  }
}
} // namespace

template <class T> void gather_columns(const gather_columns_args<T> &a, oneop::Context &ctx) {
  if (a.n * a.k > 0)
    gather_kernel<<<blocks(a.n * a.k), threads, 0, ctx.stream()>>>(a);
}

// ---- tally

namespace {
template <class T> __global__ void tally_kernel(const tally_args<T> a) {
  for (std::int64_t i = first(); i < a.n; i += step())
    if (a.keep(i) && a.x(i) >= 0 && static_cast<std::int64_t>(a.x(i)) < a.bins)
      atomicAdd(reinterpret_cast<unsigned long long *>(&a.out(static_cast<std::int64_t>(a.x(i)))), 1ull);
}
} // namespace

template <class T> void tally(const tally_args<T> &a, oneop::Context &ctx) {
  ctx.check(
      cudaMemsetAsync(a.out.data, 0, static_cast<std::size_t>(a.out.numel()) * sizeof(std::int64_t), ctx.stream()));
  if (a.n > 0)
    tally_kernel<<<blocks(a.n), threads, 0, ctx.stream()>>>(a);
}

// ---- spread, and its gradient

namespace {
template <class T> __global__ void row_means(const oneop::View<const T, 2> x, T *means) {
  T total = 0;
  for (std::int64_t j = threadIdx.x; j < x.size(1); j += threads)
    total += x(blockIdx.x, j);
  total = block_sum(total);
  if (threadIdx.x == 0)
    means[blockIdx.x] = total / static_cast<T>(x.size(1));
}

template <class T> __global__ void spread_kernel(const spread_args<T> a, const T *means) {
  T total = 0;
  for (std::int64_t j = threadIdx.x; j < a.m; j += threads) {
    const T off = a.x(blockIdx.x, j) - means[blockIdx.x];
    total += off * off;
  }
  total = block_sum(total);
  if (threadIdx.x == 0)
    a.out(blockIdx.x) = total / static_cast<T>(a.m);
}

template <class T> __global__ void spread_grad_kernel(const spread_grad_args<T> a, const T *means) {
  for (std::int64_t j = threadIdx.x; j < a.m; j += threads)
    a.grad_x(blockIdx.x, j) = 2 / static_cast<T>(a.m) * (a.x(blockIdx.x, j) - means[blockIdx.x]) * a.grad(blockIdx.x);
}
} // namespace

template <class T> void spread(const spread_args<T> &a, oneop::Context &ctx) {
  if (a.n == 0)
    return;
  T *means = ctx.scratch<T>(a.n);
  row_means<<<static_cast<unsigned>(a.n), threads, 0, ctx.stream()>>>(a.x, means);
  spread_kernel<<<static_cast<unsigned>(a.n), threads, 0, ctx.stream()>>>(a, means);
}

template <class T> void spread_grad(const spread_grad_args<T> &a, oneop::Context &ctx) {
  if (a.n == 0 || !a.needs_x)
    return;
  T *means = ctx.scratch<T>(a.n);
  row_means<<<static_cast<unsigned>(a.n), threads, 0, ctx.stream()>>>(a.x, means);
  spread_grad_kernel<<<static_cast<unsigned>(a.n), threads, 0, ctx.stream()>>>(a, means);
}

// ---- what the tests ask about the call itself

namespace {
__global__ void tell(const oneop::View<std::int64_t, 1> out, std::int64_t stream, std::int64_t device) {
  out(0) = stream;
  out(1) = device;
}

__global__ void copy(const oneop::View<const float, 1> from, const oneop::View<float, 1> to) {
  for (std::int64_t i = first(); i < from.size(0); i += step())
    to(i) = from(i);
}

__global__ void count_up(const oneop::View<const float, 1> x, const oneop::View<float, 1> out, std::int64_t rounds) {
  for (std::int64_t i = first(); i < x.size(0); i += step()) {
    volatile float value = x(i);
    for (std::int64_t r = 0; r < rounds; ++r)
      value = value + 1.0f;
    out(i) = value;
  }
}
} // namespace

template <class T> void whereabouts(const whereabouts_args<T> &a, oneop::Context &ctx) {
  int device = -1;
  ctx.check(cudaGetDevice(&device));
  tell<<<1, 1, 0, ctx.stream()>>>(a.out, reinterpret_cast<std::intptr_t>(ctx.stream()), device);
}

template <class T> void failing(const failing_args<T> &a, oneop::Context &ctx) {
  if (a.how == "fail")
    ctx.fail("as it was asked to");
  if (a.how == "check")
    ctx.check(cudaMemcpyAsync(nullptr, a.x.data, sizeof(T), cudaMemcpyDeviceToDevice, ctx.stream()));
  if (a.how == "memory")
    ctx.scratch(std::int64_t{1} << 50);
  copy<<<1, a.how == "launch" ? 4096 : 32, 0, ctx.stream()>>>(a.x, a.out);
}

template <class T> void slow(const slow_args<T> &a, oneop::Context &ctx) {
  if (a.n > 0)
    count_up<<<blocks(a.n), threads, 0, ctx.stream()>>>(a.x, a.out, a.rounds);
}
