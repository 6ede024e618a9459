/* The kernel of `pairs` in probe.py: sums of rows, which may ignore a stride. */
#include "pairs.h"

int pairs_f32(const pairs_args_f32 *a, oneop_context *ctx) {
  const bool contiguous = a->fault.size > 0;
  for (int64_t i = 0; i < a->n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < a->m; ++j)
      sum += contiguous ? a->x.data[i * a->m + j] : a->x.data[i * a->x.stride[0] + j * a->x.stride[1]];
    a->out.data[i] = sum;
  }
  (void)ctx;
  return 0;
}
