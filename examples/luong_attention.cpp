// The kernels of luong_attention.py on the CPU: one sequence at a time, sequences in parallel.
#include "attend.h"       // generated
#include "concat_score.h" // from luong_attention.py

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

// A sum in four independent lanes, which the compiler may keep in one vector register.
template <class T> T dot(const T *x, const T *y, int64_t n) {
  T sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t lane = 0; lane < 4; ++lane)
      sums[lane] += x[i + lane] * y[i + lane];
  for (; i < n; ++i)
    sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

} // namespace

template <class T> void concat_score(const concat_score_args<T> &a, oneop::Context &ctx) {
  // The hidden state's part of weight [hidden; output] is the same for every step.
  T *projected = ctx.scratch<T>(a.batch * a.u);
  ctx.parallel_for(0, a.batch, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T *const from_hidden = projected + b * a.u;
      for (int64_t i = 0; i < a.u; ++i)
        from_hidden[i] = dot(a.weight.data + i * (a.h + a.e), a.hidden.data + b * a.h, a.h);
      for (int64_t t = 0; t < a.t; ++t) {
        const T *output = a.outputs.data + (b * a.t + t) * a.e;
        T score = T(0);
        for (int64_t i = 0; i < a.u; ++i)
          score += a.v(i) * std::tanh(from_hidden[i] + dot(a.weight.data + i * (a.h + a.e) + a.h, output, a.e));
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
