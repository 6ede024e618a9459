// The kernels of luong_attention.py on the CPU: one sequence at a time, sequences in parallel.
#include "attend.h"       // generated
#include "concat_score.h" // from luong_attention.py

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

// result[r] += x . rows[r], for R rows that are `stride` apart. Each sum has independent lanes, 16 bytes of them, which the
// compiler may keep in a vector register; with four rows at a time the processor always has one to add to.
template <int64_t R, class T> void add_dots(T *result, const T *x, int64_t n, const T *rows, int64_t stride) {
  constexpr int64_t LANES = 16 / sizeof(T);
  T sums[R][LANES] = {};
  int64_t p = 0;
  for (; p + LANES <= n; p += LANES)
    for (int64_t r = 0; r < R; ++r)
      for (int64_t lane = 0; lane < LANES; ++lane)
        sums[r][lane] += x[p + lane] * rows[r * stride + p + lane];
  for (; p < n; ++p)
    for (int64_t r = 0; r < R; ++r)
      sums[r][0] += x[p] * rows[r * stride + p];
  for (int64_t r = 0; r < R; ++r)
    for (const T sum : sums[r])
      result[r] += sum;
}

// result += matrix x, for a matrix of `count` rows that are `stride` apart.
template <class T> void add_product(T *result, const T *x, int64_t n, const T *matrix, int64_t count, int64_t stride) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    add_dots<4>(result + i, x, n, matrix + i * stride, stride);
  for (; i < count; ++i)
    add_dots<1>(result + i, x, n, matrix + i * stride, stride);
}

// Right to two units in the last place of 1, which is all that a sum of such values needs; std::tanh takes thrice as long.
template <class T> T tanh_in_a_sum(T x) { return T(1) - T(2) / (std::exp(T(2) * x) + T(1)); }

} // namespace

template <class T> void concat_score(const concat_score_args<T> &a, oneop::Context &ctx) {
  const int64_t stride = a.h + a.e; // of weight, whose first h columns are for hidden and the others for outputs
  T *const scratch = ctx.scratch<T>(2 * a.u * a.batch);
  ctx.parallel_for(0, a.batch, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      // The part of weight [hidden; output] that comes from hidden is the same for every step.
      T *const from_hidden = scratch + 2 * a.u * b, *const projected = from_hidden + a.u;
      std::fill(from_hidden, from_hidden + a.u, T(0));
      add_product(from_hidden, a.hidden.data + b * a.h, a.h, a.weight.data, a.u, stride);
      for (int64_t t = 0; t < a.t; ++t) {
        std::copy(from_hidden, from_hidden + a.u, projected);
        add_product(projected, a.outputs.data + (b * a.t + t) * a.e, a.e, a.weight.data + a.h, a.u, stride);
        T score = T(0);
        for (int64_t i = 0; i < a.u; ++i)
          score += a.v(i) * tanh_in_a_sum(projected[i]);
        a.out(b, t) = score;
      }
    }
  });
}

template <class T> void attend(const attend_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.batch, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t length = a.lengths ? std::clamp<int64_t>(a.lengths(b), 0, a.t) : a.t;
      const T *scores = a.scores.data + b * a.t;
      T *const weights = a.weights.data + b * a.t, *const context = a.context.data + b * a.e;
      // exp(score - the largest score) cannot overflow.
      T largest = -std::numeric_limits<T>::infinity(), total = T(0);
      for (int64_t t = 0; t < length; ++t)
        largest = std::max(largest, scores[t]);
      for (int64_t t = 0; t < length; ++t)
        total += weights[t] = std::exp(scores[t] - largest);
      std::fill(weights + length, weights + a.t, T(0));
      std::fill(context, context + a.e, T(0));
      for (int64_t t = 0; t < length; ++t) {
        weights[t] /= total;
        const T *output = a.outputs.data + (b * a.t + t) * a.e;
        for (int64_t i = 0; i < a.e; ++i)
          context[i] += weights[t] * output[i];
      }
    }
  });
}
