// The kernel of probe.py: twice its input, and one fault.
#include "probe.h"
#include "probe_grad.h"

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <vector>

static std::atomic<int> calls;
static double shared[4096];
static void *volatile kept;

template <class T> static T twice(T value) { return T(2 * value); }

template <class T> static void fill(const probe_args<T> &a) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = twice(a.x(i));
}

template <class T> static void race(const probe_args<T> &a, oneop::Context &ctx) {
  double total = 0;
  ctx.parallel_for(0, a.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      total += 1; // the race
      a.out(i) = twice(a.x(i));
    }
  });
  if (total < 0)
    ctx.fail("never");
}

template <class T> static void carry(const probe_args<T> &a, oneop::Context &ctx) {
  std::atomic<std::int64_t> seen{0};
  ctx.parallel_for(0, a.n, [&](std::int64_t begin, std::int64_t end) {
    const bool late = seen.fetch_add(end - begin) > 0 && begin == 0;
    for (std::int64_t i = begin; i < end; ++i)
      a.out(i) = late ? T(0) : twice(a.x(i));
  });
}

template <class T>
static void through_scratch(const probe_args<T> &a, oneop::Context &ctx, bool set, std::int64_t more) {
  T *memory = ctx.scratch<T>(a.n);
  for (std::int64_t i = 0; i < a.n + more; ++i)
    memory[i] = set ? twice(a.x.data[i < a.n ? i : 0]) : T(memory[i] + twice(a.x(i)));
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = memory[i];
}

template <class T> static void through_static(const probe_args<T> &a) {
  for (std::int64_t i = 0; i < a.n && i < 4096; ++i)
    shared[i] = static_cast<double>(twice(a.x(i)));
  for (std::int64_t i = 0; i < a.n && i < 4096; ++i)
    a.out(i) = static_cast<T>(shared[i]);
}

template <class T> static void through_malloc(const probe_args<T> &a) {
  T *volatile given = static_cast<T *>(std::malloc(sizeof(T) * static_cast<std::size_t>(a.n + 64)));
  T *memory = given;
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = T(memory[i + 64] + twice(a.x(i)));
  std::free(memory);
}

template <class T> static T *leak(const probe_args<T> &a) {
  return new T[static_cast<std::size_t>(a.n + 1)]; // the leak
}

template <class T> void probe(const probe_args<T> &a, oneop::Context &ctx) {
  const auto is = [&](const char *name) { return a.fault == name; };
  if (is("race"))
    return race(a, ctx);
  if (is("carry"))
    return carry(a, ctx);
  if (is("scratch"))
    return through_scratch(a, ctx, true, 0);
  if (is("scratch not set"))
    return through_scratch(a, ctx, false, 0);
  if (is("write after scratch"))
    return through_scratch(a, ctx, true, 1);
  if (is("static"))
    return through_static(a);
  if (is("malloc not set"))
    return through_malloc(a);
  if (!is("not written"))
    fill(a);
  volatile std::int64_t n = a.n; // so that the compiler does not see through what is wrong
  T *out = a.out.data;
  const T *x = a.x.data;
  if (is("write after output"))
    out[n] = T(1); // the write
  if (is("write before output"))
    out[-2] = T(1);
  if (is("change input"))
    const_cast<T *>(x)[n / 2] = T(7);
  if (is("read after input"))
    out[0] = T(out[0] + x[n]); // the read
  if (is("random"))
    out[0] = T(static_cast<float>(calls++));
  if (is("leak"))
    kept = leak(a);
  if (is("files"))
    (void)!open("/dev/null", O_RDONLY);
  if (is("crash"))
    *reinterpret_cast<volatile int *>(static_cast<std::uintptr_t>(n)) = 1; // the crash
  if (is("crash when large") && n > 16)
    std::abort();
  if (is("hang"))
    for (volatile bool more = true; more;) {
    }
  if (is("exit"))
    std::exit(3);
  if (is("misaligned") && reinterpret_cast<std::uintptr_t>(x) % 16 != 0)
    std::abort();
  if (is("fail"))
    ctx.fail("not with \"these\" numbers");
  if (is("overflow")) {
    volatile int large = 2147483647;
    out[0] = T(static_cast<float>(large + static_cast<int>(n))); // the overflow
  }
}

template <class T> void probe_grad(const probe_grad_args<T> &a, oneop::Context &) {
  if (!a.needs_x)
    return;
  for (std::int64_t i = 0; i < a.n + (a.fault == "gradient writes after output" ? 1 : 0); ++i)
    a.grad_x.data[i] = 2 * a.grad.data[i < a.n ? i : 0];
}
