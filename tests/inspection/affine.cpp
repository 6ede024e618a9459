// insp::affine, as the definition says.
#include "affine.h"

template <class T> void affine(const affine_args<T> &a, oneop::Context &ctx) {
  const T alpha = static_cast<T>(a.alpha);
  const T power = static_cast<T>(a.power.value_or(0.0));
  ctx.parallel_for(0, a.batch, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < a.n; ++j) {
        const T y = a.mode == "plain" ? alpha * a.x(i, j) : a.x(i, j) - alpha;
        a.out(i, j) = y + power + (a.shift ? a.shift(j) : T(0));
      }
  });
}
