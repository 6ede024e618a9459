// The kernels of small.py for CUDA.
#include "kept.h"
#include "repeated.h"
#include "scaled.h"
#include "shifted.h"

namespace {

constexpr unsigned threads = 128;

template <class T> __global__ void scale(const T *x, T *out, std::int64_t n, double alpha, double beta) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i < n)
    out[i] = static_cast<T>(alpha * static_cast<double>(x[i]) + beta);
}

template <class T> __global__ void keep(const T *x, std::int64_t n, T *room, std::int64_t *count) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] > T(0))
      room[found++] = x[i];
  *count = found;
}

template <class T>
void launch(const T *x, T *out, std::int64_t n, double alpha, double beta, const oneop::Context &ctx) {
  const auto blocks = static_cast<unsigned>((n + threads - 1) / threads);
  if (blocks > 0)
    scale<<<blocks, threads, 0, ctx.stream()>>>(x, out, n, alpha, beta);
}

} // namespace

template <class T> void scaled(const scaled_args<T> &a, oneop::Context &ctx) {
  launch(a.x.data, a.out.data, a.n, a.alpha, a.beta, ctx);
}

template <class T> void shifted(const shifted_args<T> &a, oneop::Context &ctx) {
  launch(a.x.data, a.out.data, a.n, 1.0, a.by ? *a.by * static_cast<double>(a.times) : 0.0, ctx);
}

template <class T> void repeated(const repeated_args<T> &a, oneop::Context &ctx) {
  T *row = ctx.scratch<T>(a.n);
  launch(a.x.data, row, a.n, 1.0, 0.0, ctx);
  for (std::int64_t i = 0; i < a.times; ++i)
    launch<T>(row, a.out.data + i * a.n, a.n, 1.0, 0.0, ctx);
}

template <class T> void kept(const kept_args<T> &a, oneop::Context &ctx) {
  T *room = ctx.scratch<T>(a.n);
  auto *count = ctx.scratch<std::int64_t>(1);
  keep<<<1, 1, 0, ctx.stream()>>>(a.x.data, a.n, room, count);
  std::int64_t found = 0;
  ctx.check(cudaMemcpyAsync(&found, count, sizeof found, cudaMemcpyDeviceToHost, ctx.stream()));
  ctx.check(cudaStreamSynchronize(ctx.stream()));
  const auto out = ctx.resize(a.out, {found});
  const auto bytes = sizeof(T) * static_cast<std::size_t>(found);
  ctx.check(cudaMemcpyAsync(out.data, room, bytes, cudaMemcpyDeviceToDevice, ctx.stream()));
}
