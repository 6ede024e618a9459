// The kernel of average.py.
#include "average.h"

template <class T> void average(const average_args<T> &a, oneop::Context &ctx) {
  ctx.parallel_for(0, a.n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < a.m; ++j)
        sum += static_cast<double>(a.x(i, j));
      a.out(i) = static_cast<T>(sum / static_cast<double>(a.m));
    }
  });
}
