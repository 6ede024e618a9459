// out = alpha * x @ weight.T + beta * bias, on the CPU.
#include "scaled_linear.h" // generated from scaled_linear.py

#include <algorithm>

namespace {

constexpr int64_t ROWS = 4; // of weight at a time: each element of x that is loaded serves all of them

// The dot products of x with R rows of weight. Each is summed in a few independent lanes, 32 bytes of them: the compiler
// may then use vector registers, and the rounding error grows with k / lanes, not with k.
template <int64_t R, class T> void dot(const T *x, const T *weight, int64_t k, T *result) {
  constexpr int64_t LANES = 32 / sizeof(T);
  T sums[R][LANES] = {};
  int64_t p = 0;
  for (; p + LANES <= k; p += LANES)
    for (int64_t r = 0; r < R; ++r)
      for (int64_t lane = 0; lane < LANES; ++lane)
        sums[r][lane] += x[p + lane] * weight[r * k + p + lane];
  for (int64_t r = 0; r < R; ++r) {
    result[r] = T(0);
    for (const T sum : sums[r])
      result[r] += sum;
    for (int64_t q = p; q < k; ++q)
      result[r] += x[q] * weight[r * k + q];
  }
}

} // namespace

template <class T> void scaled_linear(const scaled_linear_args<T> &a, oneop::Context &ctx) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  const int64_t blocks = (a.m + ROWS - 1) / ROWS;
  const int64_t grain = 1 + 16384 / (ROWS * a.k + 1); // some microseconds of work
  // One step is one row of x against one block of weight, which stays in the cache while the rows of x pass.
  ctx.parallel_for(0, blocks * a.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      const int64_t i = step % a.n, j = step / a.n * ROWS, rows = std::min(ROWS, a.m - j);
      const T *x = a.x.data + i * a.k, *weight = a.weight.data + j * a.k;
      T sums[ROWS];
      if (rows == ROWS)
        dot<ROWS>(x, weight, a.k, sums);
      else
        for (int64_t r = 0; r < rows; ++r)
          dot<1>(x, weight + r * a.k, a.k, sums + r);
      for (int64_t r = 0; r < rows; ++r)
        a.out(i, j + r) = alpha * sums[r] + (a.bias ? T(beta * a.bias(j + r)) : T(0));
    }
  });
}
