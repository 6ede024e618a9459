// What the Python side of the runtime (call.cpp) lends the side that knows no Python (runtime.cpp).
#ifndef ONEOP_TARGETS_PYTORCH_HOOKS_H
#define ONEOP_TARGETS_PYTORCH_HOOKS_H

#include <cstdint>

#include <ATen/core/Tensor.h>

struct oneop_torch_hooks {
  // Throws the error of a failed call: Python's CallError, as a C++ exception that torch translates back.
  void (*fail)(const char *message);
  // Builds and attaches the kernels of an operator that was defined again.
  void (*prepare)(const char *name);
  // Builds an operator's CUDA kernels and attaches them, or says that there are none.
  void (*prepare_cuda)(const char *name);
  // torch.func's levels. Only Python can reach them: torch ships their C++ headers without one they include.
  int64_t (*push_level)();
  void (*pop_level)();
  at::Tensor (*wrap)(const at::Tensor &tensor, int64_t level);
  at::Tensor (*unwrap)(const at::Tensor &tensor, int64_t level);
};

#endif
