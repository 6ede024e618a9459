// The kernel of positive.py.
#include "positive.h"

#include <string>

template <class T> void positive(const positive_args<T> &a, oneop::Context &ctx) {
  const T least = static_cast<T>(a.least);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    count += a.x(i) > least;
  const auto value = ctx.resize(a.value, {count});
  const auto place = ctx.resize(a.place, {count});
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.x(i) > least) {
      value(at) = a.x(i) - least;
      place(at++) = i;
    }
}
