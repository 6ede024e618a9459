/* The kernel of settings.py. */
#include "settings.h"

static int64_t characters(oneop_string text) {
  int64_t count = 0;
  for (int64_t i = 0; i < text.size; ++i)
    count += ((unsigned char)text.data[i] & 0xc0) != 0x80; /* as Python counts UTF-8 */
  return count;
}

int settings_f32(const settings_args_f32 *a, oneop_context *ctx) {
  double value = (double)characters(a->word) + (a->extra.present ? a->extra.value : 0.0);
  for (int64_t i = 0; i < a->factors.size; ++i)
    value += a->factors.data[i];
  for (int64_t i = 0; i < a->shifts.size; ++i)
    value += (double)a->shifts.data[i];
  for (int64_t i = 0; i < a->names.size; ++i)
    value += (double)characters(a->names.data[i]);
  const bool product = a->mode.size == 7;
  for (int64_t i = 0; i < a->n; ++i) {
    const double scaled = (double)a->x.data[i] * a->scale, y = product ? scaled * value : scaled + value;
    for (int64_t t = 0; t < a->times; ++t)
      a->out.data[i * a->times + t] = (float)(a->negate ? -y : y);
  }
  (void)ctx;
  return 0;
}
