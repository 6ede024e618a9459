/* The kernel of tally.py. */
#include "tally.h"

static void rows(void *data, int64_t begin, int64_t end) {
  const tally_args *a = data;
  for (int64_t i = begin; i < end; ++i) {
    int64_t sum = 0;
    for (int64_t j = 0; j < a->m; ++j)
      sum += (int64_t)a->x.data[i * a->m + j] * (a->weight.present ? a->weight.data[j] : 1);
    a->out.data[i] = sum;
  }
}

int tally(const tally_args *a, oneop_context *ctx) {
  oneop_parallel_for(ctx, 0, a->n, 1, rows, (void *)a);
  return 0;
}
