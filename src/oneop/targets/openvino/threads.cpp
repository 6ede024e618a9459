// threads.cpp: parallel_for on threads of this library's own, as many at a time as OpenVINO gives the stream that calls.
// C++17.
//
// OpenVINO lends an operator no threads: its own are TBB's, whose headers the openvino package does not carry. How many
// a stream may use is the concurrency of the TBB arena that the call comes from, which honours inference_num_threads and
// num_streams; that is one exported function of the TBB in OpenVINO's folder. The caller always works too, so a loop
// ends even if no helper is free or can be started.
#include "adapter.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

#if defined(ONEOP_OPENVINO_TBB)
#pragma GCC visibility push(default)
namespace tbb {
namespace detail {
namespace d1 {
class task_arena_base;
}
namespace r1 {
int max_concurrency(const d1::task_arena_base *arena); // null: the arena of the caller
}
} // namespace detail
} // namespace tbb
#pragma GCC visibility pop
#endif

namespace oneop_openvino {
namespace {

constexpr std::int64_t pieces_a_thread = 4;

struct Loop {
  void (*body)(void *, std::int64_t, std::int64_t);
  void *data;
  std::int64_t begin, end, piece, count;
  std::atomic<std::int64_t> next{0};
  int wanted = 0; // helpers that may still join
  int inside = 0; // helpers at work
  std::condition_variable left;
};

// A loop inside a loop's body runs where it is: the outer one has already shared out the threads.
thread_local bool inside_loop = false;

void work(Loop &loop) {
  inside_loop = true;
  for (std::int64_t index; (index = loop.next.fetch_add(1)) < loop.count;) {
    const std::int64_t begin = loop.begin + index * loop.piece;
    loop.body(loop.data, begin, loop.end - begin < loop.piece ? loop.end : begin + loop.piece);
  }
  inside_loop = false;
}

class Pool {
public:
  void run(Loop &loop, int helpers) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      loop.wanted = helpers;
      waiting_.push_back(&loop);
      wanted_ += helpers;
      while (idle_ < wanted_ && threads_ < limit() && start()) {
      }
    }
    wake_.notify_all();
    work(loop);
    std::unique_lock<std::mutex> lock(mutex_);
    wanted_ -= loop.wanted;
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), &loop), waiting_.end());
    loop.left.wait(lock, [&loop] { return loop.inside == 0; });
  }

private:
  static int limit() { return std::max(2, static_cast<int>(std::thread::hardware_concurrency())) * 2; }

  // False where the system gives no more threads: those that are there do the work.
  bool start() {
    try {
      std::thread([this] { help(); }).detach();
    } catch (const std::system_error &) {
      return false;
    }
    ++threads_;
    ++idle_;
    return true;
  }

  [[noreturn]] void help() {
    use_every_processor();
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !waiting_.empty(); });
      Loop &loop = *waiting_.front();
      ++loop.inside;
      --wanted_;
      --idle_;
      if (--loop.wanted == 0)
        waiting_.pop_front();
      lock.unlock();
      work(loop);
      lock.lock();
      ++idle_;
      if (--loop.inside == 0)
        loop.left.notify_one();
    }
  }

  // A new thread is bound to the processors of its maker, and OpenVINO binds each of its threads to one.
  static void use_every_processor() {
#if defined(__linux__)
    cpu_set_t processors;
    if (sched_getaffinity(getpid(), sizeof processors, &processors) == 0)
      sched_setaffinity(0, sizeof processors, &processors);
#endif
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Loop *> waiting_; // those with wanted > 0
  int wanted_ = 0;             // their sum
  int idle_ = 0, threads_ = 0;
};

std::int64_t concurrency() {
#if defined(ONEOP_OPENVINO_TBB)
  return tbb::detail::r1::max_concurrency(nullptr);
#else
  return static_cast<std::int64_t>(std::thread::hardware_concurrency());
#endif
}

} // namespace

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  void (*body)(void *, std::int64_t, std::int64_t), void *data) {
  if (begin >= end)
    return;
  const std::int64_t length = end - begin, threads = inside_loop ? 1 : concurrency();
  const std::int64_t wanted = std::min(length / std::max<std::int64_t>(grain, 1), threads * pieces_a_thread);
  if (threads <= 1 || wanted <= 1) {
    body(data, begin, end);
    return;
  }
  // Its threads outlive the last model and wait in its memory, so it is never destroyed.
  static Pool &pool = *new Pool;
  Loop loop;
  loop.body = body;
  loop.data = data;
  loop.begin = begin;
  loop.end = end;
  loop.piece = (length + wanted - 1) / wanted;
  loop.count = (length + loop.piece - 1) / loop.piece;
  pool.run(loop, static_cast<int>(std::min(loop.count, threads)) - 1);
}

} // namespace oneop_openvino
