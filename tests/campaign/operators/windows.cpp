// The kernel of windows.py.
#include "windows.h"

#include <vector>

template <class T> void windows(const windows_args<T> &a, oneop::Context &ctx) {
  const std::int64_t count = a.out.size(1);
  ctx.parallel_for(0, a.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> squares(static_cast<std::size_t>(a.n));
    for (std::int64_t b = begin; b < end; ++b) {
      for (std::int64_t i = 0; i < a.n; ++i)
        squares[static_cast<std::size_t>(i)] = a.x(b, i) * a.x(b, i);
      for (std::int64_t w = 0; w < count; ++w) {
        T sum = 0;
        for (std::int64_t i = 0; i < a.size; ++i)
          sum += squares[static_cast<std::size_t>(w * a.stride + i)];
        a.out(b, w) = sum;
      }
    }
  });
}
