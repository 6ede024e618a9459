// CUDA's language and runtime for a C++ compiler, as far as the tests' kernels use it: a launch runs its blocks one after the
// other, and the threads of a block take turns at each barrier. With it .cu files compute on the CPU, so that their numbers
// are checked on a machine without a GPU. What it cannot show: races between blocks, and what is slow.
#ifndef ONEOP_EMULATED_CUDA_RUNTIME_H
#define ONEOP_EMULATED_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static

typedef struct CUstream_st *cudaStream_t;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace oneop_emulated {

constexpr size_t stack_size = 64 * 1024;
constexpr unsigned most_threads = 1024, most_devices = 2;

inline uint3 thread_index{}, block_index{};
inline dim3 block_size, grid_size;
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int device = 0;

struct Fiber {
  ucontext_t context{}; // where it begins
  jmp_buf state;        // where it waits: unlike a swap of contexts, a jump asks nothing of the system
  std::unique_ptr<char[]> stack{new char[stack_size]};
  uint3 index{};
  bool begun = false, done = false;
};
struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  Fiber *running = nullptr;
  alignas(16) char slots[most_threads][16]; // what a warp's threads show each other
  void (*body)(void *) = nullptr;
  void *data = nullptr;
};
inline Block block;
inline std::mutex mutex; // kernels share the block above, as they share their static `__shared__` arrays

inline void enter() {
  block.body(block.data);
  block.running->done = true;
  _longjmp(block.scheduler, 1);
}

// Every thread of the block arrives here before any goes on.
inline void barrier() {
  auto *mine = block.running;
  if (_setjmp(mine->state) == 0)
    _longjmp(block.scheduler, 1);
  thread_index = block.running->index;
}

// Until it arrives at a barrier, or ends.
inline void go_on(Fiber &fiber) {
  if (_setjmp(block.scheduler) != 0)
    return;
  if (fiber.begun)
    _longjmp(fiber.state, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}

inline void run_block(unsigned threads) {
  if (block.fibers.size() < threads)
    block.fibers.resize(threads);
  for (unsigned t = 0; t < threads; ++t) {
    auto &fiber = block.fibers[t];
    fiber.begun = fiber.done = false;
    fiber.index = {t % block_size.x, t / block_size.x % block_size.y, t / block_size.x / block_size.y};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_size;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (unsigned t = 0; t < threads; ++t) {
      auto &fiber = block.fibers[t];
      if (fiber.done)
        continue;
      block.running = &fiber;
      thread_index = fiber.index;
      go_on(fiber);
      more = more || !fiber.done;
    }
  }
}

template <class F> void launch(dim3 grid, dim3 threads, size_t, cudaStream_t, F f) {
  const unsigned count = threads.x * threads.y * threads.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || count == 0 || count > most_threads) {
    last_error = cudaErrorInvalidConfiguration;
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  block.body = [](void *data) { (*static_cast<F *>(data))(); };
  block.data = &f;
  grid_size = grid;
  block_size = threads;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        run_block(count);
      }
}
template <class F> void launch(dim3 grid, dim3 threads, F f) { launch(grid, threads, 0, nullptr, f); }

inline unsigned thread_number() {
  return thread_index.x + block_size.x * (thread_index.y + block_size.y * thread_index.z);
}

template <class T> T exchanged(T value, unsigned from) {
  static_assert(sizeof(T) <= 16, "a warp exchanges small values");
  std::memcpy(block.slots[thread_number()], &value, sizeof value);
  barrier();
  T result = value;
  if (from < most_threads)
    std::memcpy(&result, block.slots[from], sizeof result);
  barrier();
  return result;
}

} // namespace oneop_emulated

#define threadIdx (oneop_emulated::thread_index)
#define blockIdx (oneop_emulated::block_index)
#define blockDim (oneop_emulated::block_size)
#define gridDim (oneop_emulated::grid_size)

inline void __syncthreads() { oneop_emulated::barrier(); }

template <class T> T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned me = oneop_emulated::thread_number();
  return oneop_emulated::exchanged(value, me % 32 + delta < 32 ? me + delta : me);
}

template <class T> T atomicAdd(T *at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}

inline cudaError_t cudaGetLastError() {
  const auto error = oneop_emulated::last_error;
  oneop_emulated::last_error = cudaSuccess;
  return error;
}
inline const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
         : error == cudaErrorInvalidDevice      ? "cudaErrorInvalidDevice"
         : error == cudaSuccess                 ? "cudaSuccess"
                                                : "cudaErrorInvalidValue";
}
inline const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
         : error == cudaErrorInvalidDevice      ? "invalid device ordinal"
         : error == cudaSuccess                 ? "no error"
                                                : "invalid argument";
}
inline cudaError_t cudaGetDevice(int *device) {
  *device = oneop_emulated::device;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= static_cast<int>(oneop_emulated::most_devices))
    return cudaErrorInvalidDevice;
  oneop_emulated::device = device;
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind, cudaStream_t = nullptr) {
  if (size > 0 && (to == nullptr || from == nullptr))
    return cudaErrorInvalidValue;
  if (size > 0)
    std::memcpy(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t = nullptr) {
  if (size > 0 && to == nullptr)
    return cudaErrorInvalidValue;
  if (size > 0)
    std::memset(to, value, size);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

#endif
