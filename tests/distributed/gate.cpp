// out = x * sigmoid(slope * x)
#include "gate.h" // generated from operators.py

#include <cmath>

template <class T> void gate(const gate_args<T> &a, oneop::Context &ctx) {
  const T slope = static_cast<T>(a.slope);
  ctx.parallel_for(0, a.batch * a.n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      a.out.data[i] = a.x.data[i] / (T(1) + std::exp(-slope * a.x.data[i]));
  });
}
