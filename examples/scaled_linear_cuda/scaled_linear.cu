// out = alpha * x @ weight.T + beta * bias and its gradients, on a GPU.
#include "scaled_linear.h"      // generated from scaled_linear.py
#include "scaled_linear_grad.h" // generated from scaled_linear.py

namespace {

constexpr int TILE = 16; // a block of TILE * TILE threads computes as many elements of a product

// A matrix in memory, or its transpose: element (i, j) is data[i * row + j * column].
template <class T> struct Matrix {
  const T *data;
  int64_t row, column;
  __device__ T operator()(int64_t i, int64_t j) const { return data[i * row + j * column]; }
};

// out = alpha * left @ right + beta * bias, for left of n x k and right of k x m. A tile of each at a time lies in shared
// memory, so that what is loaded serves TILE elements.
template <class T>
__global__ void product(T *out, const Matrix<T> left, const Matrix<T> right, const T *bias, int64_t n, int64_t k,
                        int64_t m, T alpha, T beta) {
  __shared__ T lefts[TILE][TILE + 1], rights[TILE][TILE + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t j = blockIdx.x * static_cast<int64_t>(TILE) + x;
  for (int64_t top = blockIdx.y * static_cast<int64_t>(TILE); top < n; top += gridDim.y * static_cast<int64_t>(TILE)) {
    const int64_t i = top + y;
    T sum = 0;
    for (int64_t p = 0; p < k; p += TILE) {
      lefts[y][x] = i < n && p + x < k ? left(i, p + x) : T(0);
      rights[y][x] = p + y < k && j < m ? right(p + y, j) : T(0);
      __syncthreads();
      for (int q = 0; q < TILE; ++q)
        sum += lefts[y][q] * rights[q][x];
      __syncthreads();
    }
    if (i < n && j < m)
      out[i * m + j] = alpha * sum + (bias ? beta * bias[j] : T(0));
  }
}

template <class T>
void multiply(oneop::Context &ctx, T *out, Matrix<T> left, Matrix<T> right, const T *bias, int64_t n, int64_t k,
              int64_t m, double alpha, double beta) {
  if (n == 0 || m == 0)
    return; // a launch of no blocks is an error
  const int64_t down = (n + TILE - 1) / TILE, across = (m + TILE - 1) / TILE;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down < 65535 ? down : 65535)), block(TILE, TILE);
  product<<<grid, block, 0, ctx.stream()>>>(out, left, right, bias, n, k, m, static_cast<T>(alpha),
                                            static_cast<T>(beta));
}

template <class T> __global__ void sum_columns(T *out, const T *grad, int64_t n, int64_t m, T beta) {
  const int64_t j = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (j >= m)
    return;
  T sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += grad[i * m + j];
  out[j] = beta * sum;
}

} // namespace

template <class T> void scaled_linear(const scaled_linear_args<T> &a, oneop::Context &ctx) {
  const Matrix<T> x{a.x.data, a.k, 1}, transposed{a.weight.data, 1, a.k};
  multiply(ctx, a.out.data, x, transposed, a.bias.data, a.n, a.k, a.m, a.alpha, a.beta);
}

template <class T> void scaled_linear_grad(const scaled_linear_grad_args<T> &a, oneop::Context &ctx) {
  const T *none = nullptr;
  if (a.needs_x)
    multiply(ctx, a.grad_x.data, Matrix<T>{a.grad.data, a.m, 1}, Matrix<T>{a.weight.data, a.k, 1}, none, a.n, a.m, a.k,
             a.alpha, 0.0);
  if (a.needs_weight)
    multiply(ctx, a.grad_weight.data, Matrix<T>{a.grad.data, 1, a.m}, Matrix<T>{a.x.data, a.k, 1}, none, a.m, a.n, a.k,
             a.alpha, 0.0);
  if (a.needs_bias && a.m > 0)
    sum_columns<<<static_cast<unsigned>((a.m + 255) / 256), 256, 0, ctx.stream()>>>(a.grad_bias.data, a.grad.data, a.n,
                                                                                    a.m, static_cast<T>(a.beta));
}
