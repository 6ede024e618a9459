// The kernels of small.py for CUDA.
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
