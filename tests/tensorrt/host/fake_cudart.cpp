// fake_cudart.cpp: what of CUDA's runtime the plugins call, on the CPU's memory. The variable FAKE_CUDA_FAILS names a
// function that fails.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

bool fails(const char *function) {
  const char *const named = std::getenv("FAKE_CUDA_FAILS");
  return named != nullptr && std::strcmp(named, function) == 0;
}

} // namespace

extern "C" {

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t) {
  if (fails("cudaMallocAsync"))
    return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(256, bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (fails("cudaMemcpyAsync"))
    return cudaErrorInvalidValue;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return fails("cudaGetLastError") ? cudaErrorInvalidConfiguration : cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "invalid argument";
}
}
