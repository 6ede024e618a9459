// 2 * x on the CPU.
#include "twice.h"

template <class T> void twice(const twice_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = 2 * a.x(i);
}
