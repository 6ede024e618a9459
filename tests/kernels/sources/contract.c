/* The kernels of contract_operators.py, in C. */
#include "both.h"
#include "choose.h"
#include "choose_grad.h"
#include "dot.h"
#include "find.h"
#include "gather.h"
#include "odd_names.h"
#include "scaled_linear.h"
#include "scaled_linear_grad.h"
#include "show.h"
#include "spread.h"
#include "total.h"
#include "total_grad.h"
#include "transpose.h"
#include "trouble.h"

static double f32_to_double(float value) { return (double)value; }
static double f64_to_double(double value) { return value; }
static double f16_to_double(oneop_float16 value) { return (double)oneop_float16_to_float(value); }
static double bf16_to_double(oneop_bfloat16 value) { return (double)oneop_bfloat16_to_float(value); }
static float f32_from_double(double value) { return (float)value; }
static double f64_from_double(double value) { return value; }
#define f16_from_double oneop_float16_from_double
#define bf16_from_double oneop_bfloat16_from_double

#define SCALED_LINEAR(S)                                                                                               \
  static void rows_##S(void *data, int64_t begin, int64_t end) {                                                       \
    const scaled_linear_args_##S *a = data;                                                                            \
    for (int64_t i = begin; i < end; ++i)                                                                              \
      for (int64_t j = 0; j < a->m; ++j) {                                                                             \
        double sum = 0;                                                                                                \
        for (int64_t p = 0; p < a->k; ++p)                                                                             \
          sum += S##_to_double(a->x.data[i * a->k + p]) * S##_to_double(a->weight.data[j * a->k + p]);                 \
        sum *= a->alpha;                                                                                               \
        if (a->bias.present)                                                                                           \
          sum += a->beta * S##_to_double(a->bias.data[j]);                                                             \
        a->out.data[i * a->m + j] = S##_from_double(sum);                                                              \
      }                                                                                                                \
  }                                                                                                                    \
  int scaled_linear_##S(const scaled_linear_args_##S *a, oneop_context *ctx) {                                         \
    scaled_linear_args_##S copy = *a;                                                                                  \
    oneop_parallel_for(ctx, 0, a->n, 1, rows_##S, &copy);                                                              \
    return 0;                                                                                                          \
  }
SCALED_LINEAR(f32)
SCALED_LINEAR(f64)
SCALED_LINEAR(f16)
SCALED_LINEAR(bf16)

int scaled_linear_grad_f32(const scaled_linear_grad_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  const float alpha = (float)a->alpha, beta = (float)a->beta;
  for (int64_t i = 0; a->needs_x && i < a->n; ++i)
    for (int64_t p = 0; p < a->k; ++p) {
      float sum = 0;
      for (int64_t j = 0; j < a->m; ++j)
        sum += a->grad.data[i * a->m + j] * a->weight.data[j * a->k + p];
      a->grad_x.data[i * a->k + p] = alpha * sum;
    }
  for (int64_t j = 0; a->needs_weight && j < a->m; ++j)
    for (int64_t p = 0; p < a->k; ++p) {
      float sum = 0;
      for (int64_t i = 0; i < a->n; ++i)
        sum += a->grad.data[i * a->m + j] * a->x.data[i * a->k + p];
      a->grad_weight.data[j * a->k + p] = alpha * sum;
    }
  for (int64_t j = 0; a->needs_bias && j < a->m; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < a->n; ++i)
      sum += a->grad.data[i * a->m + j];
    a->grad_bias.data[j] = beta * sum;
  }
  return 0;
}

typedef struct text {
  size_t used;
  char data[4096];
} text;

static void put(text *t, const char *data, size_t size) {
  if (size > sizeof t->data - t->used)
    size = sizeof t->data - t->used;
  if (size)
    memcpy(t->data + t->used, data, size);
  t->used += size;
}
static void put_text(text *t, const char *data) { put(t, data, strlen(data)); }
static void put_float(text *t, double value) {
  char number[40];
  snprintf(number, sizeof number, "%.17g", value);
  put_text(t, number);
}
static void put_int(text *t, int64_t value) {
  char number[40];
  snprintf(number, sizeof number, "%lld", (long long)value);
  put_text(t, number);
}
static void put_bool(text *t, bool value) { put_text(t, value ? "true" : "false"); }
static void put_str(text *t, oneop_string value) {
  put_text(t, "\"");
  put(t, value.data, (size_t)value.size);
  put_text(t, "\"");
}
/* Twice, as in C++, where one goes through iterators. */
#define PUT_LIST(KIND, TYPE, ELEMENT)                                                                                  \
  static void put_##KIND(text *t, TYPE value) {                                                                        \
    put_text(t, "[");                                                                                                  \
    for (int64_t i = 0; i < 2 * value.size; ++i) {                                                                     \
      put_##ELEMENT(t, value.data[i % value.size]);                                                                    \
      put_text(t, ";");                                                                                                \
    }                                                                                                                  \
    put_text(t, "]");                                                                                                  \
  }
PUT_LIST(floats, oneop_floats, float)
PUT_LIST(ints, oneop_ints, int)
PUT_LIST(strings, oneop_strings, str)
#define PUT_MAYBE(KIND)                                                                                                \
  put_text(&t, " ");                                                                                                   \
  if (a->maybe_##KIND.present)                                                                                         \
    put_##KIND(&t, a->maybe_##KIND.value);                                                                             \
  else                                                                                                                 \
    put_text(&t, "none")

int show_f32(const show_args_f32 *a, oneop_context *ctx) {
  text t = {0, {0}};
  put_float(&t, a->a_float);
  put_text(&t, " ");
  put_int(&t, a->an_int);
  put_text(&t, " ");
  put_bool(&t, a->a_bool);
  put_text(&t, " ");
  put_str(&t, a->a_str);
  put_text(&t, " ");
  put_str(&t, a->a_choice);
  put_text(&t, " ");
  put_floats(&t, a->floats);
  put_text(&t, " ");
  put_ints(&t, a->ints);
  put_text(&t, " ");
  put_strings(&t, a->strings);
  PUT_MAYBE(float);
  PUT_MAYBE(int);
  PUT_MAYBE(bool);
  PUT_MAYBE(str);
  PUT_MAYBE(floats);
  PUT_MAYBE(ints);
  PUT_MAYBE(strings);
  const int64_t sizes[] = {(int64_t)t.used};
  uint8_t *out = oneop_resize(ctx, a->out.output, sizes);
  if (!out)
    return 1;
  memcpy(out, t.data, t.used);
  return 0;
}

#define TOTAL(S)                                                                                                       \
  static void sums_##S(void *data, int64_t begin, int64_t end) {                                                       \
    const total_args_##S *a = data;                                                                                    \
    for (int64_t i = begin * a->n; i < end * a->n; ++i) {                                                              \
      double sum = 0;                                                                                                  \
      for (int64_t e = 0; e < a->xs.size; ++e)                                                                         \
        sum += S##_to_double(a->xs.data[e].data[i]);                                                                   \
      a->out.data[i] = S##_from_double(a->scale * sum);                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  int total_##S(const total_args_##S *a, oneop_context *ctx) {                                                         \
    total_args_##S copy = *a;                                                                                          \
    for (int64_t e = 0; e < a->xs.size; ++e)                                                                           \
      if (a->xs.data[e].ndim != 2 || a->xs.data[e].size[0] != a->batch || a->xs.data[e].size[1] != a->n ||             \
          a->xs.data[e].stride[0] != a->n || a->xs.data[e].stride[1] != 1 || !a->xs.data[e].present)                   \
        return oneop_fail(ctx, "the view of xs[%d] is wrong", (int)e);                                                 \
    oneop_parallel_for(ctx, 0, a->batch, 2, sums_##S, &copy);                                                          \
    return 0;                                                                                                          \
  }
TOTAL(f32)
TOTAL(f64)
TOTAL(f16)
TOTAL(bf16)

int total_grad_f32(const total_grad_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  if (!a->needs_xs)
    return 0;
  for (int64_t e = 0; e < a->grad_xs.size; ++e)
    for (int64_t i = 0; i < a->batch * a->n; ++i)
      a->grad_xs.data[e].data[i] = (float)a->scale * a->grad.data[i] + (float)e;
  return 0;
}

int choose_f32(const choose_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = a->mask.data[i] ? a->a.data[i] * (float)a->times.data[i] : a->b.data[i];
  return 0;
}

int choose_grad_f32(const choose_grad_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i) {
    if (a->needs_a)
      a->grad_a.data[i] = a->mask.data[i] ? a->grad.data[i] * (float)a->times.data[i] : 0.0f;
    if (a->needs_b)
      a->grad_b.data[i] = a->mask.data[i] ? 0.0f : a->grad.data[i];
  }
  return 0;
}

int find_f32(const find_args_f32 *a, oneop_context *ctx) {
  int64_t count = 0, rows = 0, at = 0;
  for (int64_t i = 0; i < a->n * a->m; ++i)
    count += a->x.data[i] != 0;
  if (a->mode == 1)
    return 0;
  const int64_t wrong[] = {a->mode == 3 ? -1 : a->mode == 6 ? INT64_C(1) << 40 : count, a->mode == 2 ? 3 : 2};
  if ((a->mode == 2 || a->mode == 3 || a->mode == 6) && !oneop_resize(ctx, a->places.output, wrong))
    return 1;
  if (a->mode == 4 && !oneop_resize(ctx, a->rows.output, wrong))
    return 1;
  const int64_t sizes[] = {count, 2}, more[] = {a->mode == 7 ? count + 1 : count};
  int64_t *places = oneop_resize(ctx, a->places.output, sizes);
  float *values = oneop_resize(ctx, a->values.output, more);
  if (!places || !values)
    return 1;
  for (int64_t i = 0; i < a->n; ++i) {
    const int64_t before = at;
    for (int64_t j = 0; j < a->m; ++j) {
      const float value = a->x.data[i * a->m + j];
      if (value == 0)
        continue;
      places[2 * at] = i;
      places[2 * at + 1] = j;
      values[at++] = value;
    }
    rows += at > before;
  }
  *a->rows.data = rows;
  return 0;
}

int spread_f32(const spread_args_f32 *a, oneop_context *ctx) {
  const int64_t sizes[] = {a->batch, a->times, 2};
  float *out = oneop_resize(ctx, a->out.output, sizes);
  if (!out)
    return 1;
  for (int64_t b = 0; b < a->batch; ++b)
    for (int64_t i = 0; i < a->times; ++i) {
      *out++ = a->x.data[b * a->n];
      *out++ = a->x.data[b * a->n + a->n - 1];
    }
  return 0;
}

int transpose_f32(const transpose_args_f32 *a, oneop_context *ctx) {
  (void)ctx;
  const int64_t *s = a->x.stride;
  for (int64_t b = 0; b < a->batch; ++b)
    for (int64_t i = 0; i < a->n; ++i)
      for (int64_t j = 0; j < a->m; ++j)
        a->out.data[(b * a->m + j) * a->n + i] =
            a->x.data[b * s[0] + i * s[1] + j * s[2]] + (a->y.present ? a->y.data[j * a->y.stride[0]] : 0);
  return 0;
}

#define GATHER(S, T, I)                                                                                                \
  int gather_##S##_##I(const gather_args_##S##_##I *a, oneop_context *ctx) {                                           \
    for (int64_t i = 0; i < a->m; ++i) {                                                                               \
      const int64_t row = a->index.data[i];                                                                            \
      if (row < 0 || row >= a->n)                                                                                      \
        return oneop_fail(ctx, "index %lld is not below %lld", (long long)row, (long long)a->n);                       \
      if (a->k)                                                                                                        \
        memcpy(a->out.data + i * a->k, a->x.data + row * a->k, (size_t)a->k * sizeof(T));                              \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }
GATHER(f32, float, i32)
GATHER(f32, float, i64)
GATHER(f64, double, i32)
GATHER(f64, double, i64)

int both(const both_args *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = a->a.data[i] && a->b.data[i];
  return 0;
}

int dot_f32(const dot_args_f32 *a, oneop_context *ctx) {
  float *products = oneop_scratch(ctx, (size_t)a->n * sizeof *products), sum = 0;
  if (!products)
    return oneop_fail(ctx, "there is no memory");
  if ((uintptr_t)products % 64 != 0)
    return oneop_fail(ctx, "scratch memory is not aligned");
  for (int64_t i = 0; i < a->n; ++i)
    products[i] = a->x.data[i] * a->y.data[i];
  for (int64_t i = 0; i < a->n; ++i)
    sum += products[i];
  *a->out.data = sum;
  return 0;
}

#define ODD_NAMES(S)                                                                                                   \
  int odd_names_##S(const odd_names_args_##S *a, oneop_context *ctx) {                                                 \
    (void)ctx;                                                                                                         \
    for (int64_t t = 0; t < a->T; ++t)                                                                                 \
      for (int64_t c = 0; c < a->C * a->x; ++c)                                                                        \
        for (int64_t r = 0; r < a->args; ++r)                                                                          \
          a->out.data[(r * a->C * a->x + c) * a->T + t] =                                                              \
              a->ctx.present ? *a->ctx.data : a->call.data[(t * a->C + c % a->C) * a->args + r];                       \
    return 0;                                                                                                          \
  }
ODD_NAMES(f64)
ODD_NAMES(i16)
ODD_NAMES(bool)

static void fail_here(void *data, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  oneop_fail(data, "in parallel");
}

static bool is(oneop_string mode, const char *text) {
  return (size_t)mode.size == strlen(text) && memcmp(mode.data, text, strlen(text)) == 0;
}

int trouble_f32(const trouble_args_f32 *a, oneop_context *ctx) {
  char many[5001];
  if (is(a->mode, "fail"))
    return oneop_fail(ctx, "n is %d", (int)a->n);
  if (is(a->mode, "silent"))
    return 7;
  if (is(a->mode, "parallel fail"))
    oneop_parallel_for(ctx, 0, 100, 1, fail_here, ctx);
  if (is(a->mode, "scratch") && !oneop_scratch(ctx, (size_t)1 << 50))
    return oneop_fail(ctx, "there is no memory");
  memset(many, 'x', 5000);
  many[5000] = 0;
  if (is(a->mode, "long"))
    return oneop_fail(ctx, "%s", many);
  if (is(a->mode, "long characters")) {
    for (int64_t i = a->n; i + 3 <= 5000; i += 3)
      memcpy(many + i, "\xe6\x97\xa5", 3);
    return oneop_fail(ctx, "%s", many);
  }
  if (is(a->mode, "empty"))
    return oneop_fail(ctx, "%s", "");
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = a->x.data[i];
  return 0;
}
