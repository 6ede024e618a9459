#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>

#include "chain.h"
#include "kinds.h"
#include "longs.h"
#include "minus.h"
#include "placed.h"
#include "precise.h"
#include "softmax.h"
#include "threads.h"

template <class T> void softmax(const softmax_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) + T(1);
}

// Each piece waits a while for a second thread, so that one which may come does. The first element says how many came.
template <class T> void threads(const threads_args<T> &a, oneop::Context &ctx) {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> seen;
  ctx.parallel_for(0, a.n, [&](std::int64_t begin, std::int64_t end) {
    std::unique_lock<std::mutex> lock(mutex);
    seen.insert(std::this_thread::get_id());
    changed.notify_all();
    changed.wait_for(lock, std::chrono::milliseconds(a.x(0) < 0 ? 0 : 300), [&] { return seen.size() > 1; });
    for (std::int64_t i = begin; i < end; ++i)
      a.out(i) = a.x(i);
  });
  a.out(0) = static_cast<T>(seen.size());
}

template <class T> void minus(const minus_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    if constexpr (std::is_same_v<T, bool>)
      a.out(i) = a.x(i) && !a.y(i);
    else
      a.out(i) = static_cast<T>(a.x(i) - a.y(i));
  }
}

template <class T> void kinds(const kinds_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    const T x = a.x(i), size = x < 0 ? -x : x;
    a.halves(i) = static_cast<double>(x) / 2;
    a.shorts(i) = static_cast<std::int16_t>(x);
    a.longs(i) = static_cast<std::int64_t>(x) * (std::int64_t{1} << 20);
    a.bytes(i) = static_cast<std::uint8_t>(size);
    a.positive(i) = x > 0;
    a.small(i) = oneop::float16(x / 2);
    a.ushorts(i) = static_cast<std::uint16_t>(size);
    a.uints(i) = static_cast<std::uint32_t>(size);
    a.ulongs(i) = static_cast<std::uint64_t>(size);
    a.brain(i) = oneop::bfloat16(x / 2);
  }
}

template <class T> void longs(const longs_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    a.up(i) = static_cast<std::int64_t>(a.x(i)) * (std::int64_t{1} << 33);
    a.down(i) = -a.up(i);
  }
}

template <class T> void precise(const precise_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = (a.x(i) + T(1e-9)) - a.x(i);
}

template <class T> void chain(const chain_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = (a.a ? 1000 * a.a(i) : T(0)) + 100 * a.b(i) + (a.c ? 10 * a.c(i) : T(0)) + (a.d ? a.d(i) : T(0));
}

template <class T> void placed(const placed_args<T> &a, oneop::Context &) {
  for (std::int64_t i = 0; i < a.n; ++i)
    a.out(i) = a.x(i) * T(a.size) + T(a.offset) + T(a.element_type.size());
}
