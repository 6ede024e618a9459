// The kernels that cuda_operators.py has on the CPU as well.
#include "axpby.h"

template <class T> void axpby(const axpby_args<T> &a, oneop::Context &) {
  const std::int64_t size = a.x.numel();
  for (std::int64_t i = 0; i < size; ++i)
    a.out.data[i] = static_cast<T>(a.alpha * a.x.data[i] + a.beta * a.y.data[i]);
}
