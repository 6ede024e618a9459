// oneop_glue.hpp: from a call to the arguments of a kernel in C++, and from exceptions to messages. For generated code only.
#ifndef ONEOP_GLUE_HPP
#define ONEOP_GLUE_HPP

#include "oneop.hpp"
#include "oneop_glue.h"

namespace oneop::detail {

/// How a definition describes a tensor: whether a leading group comes first; number and name of an output with `?` sizes.
struct Kind {
  bool group = false;
  int resizable = -1;
  const char *name = nullptr;
};

template <class T, int N> View<T, N> make(const oneop_tensor &tensor, const Kind &kind, View<T, N> *) {
  if (!kind.group)
    return View<T, N>(static_cast<T *>(oneop_data(&tensor)), tensor.shape, kind.resizable, kind.name);
  std::int64_t sizes[N > 0 ? N : 1];
  oneop_view_sizes(&tensor, N - 1, true, sizes);
  return View<T, N>(static_cast<T *>(oneop_data(&tensor)), sizes, kind.resizable, kind.name);
}

template <class T, int N> StridedView<T, N> make(const oneop_tensor &tensor, const Kind &kind, StridedView<T, N> *) {
  std::int64_t sizes[N > 0 ? N : 1], strides[N > 0 ? N : 1];
  const int n_dims = kind.group ? N - 1 : N;
  oneop_view_sizes(&tensor, n_dims, kind.group, sizes);
  oneop_view_strides(&tensor, n_dims, kind.group, sizes, strides);
  return StridedView<T, N>(static_cast<T *>(oneop_data(&tensor)), sizes, strides);
}

template <class V> V view(const oneop_argument &argument, Kind kind = {}) {
  return make(argument.tensors[0], kind, static_cast<V *>(nullptr));
}

template <class V> V optional_view(const oneop_argument &argument, Kind kind = {}) {
  return argument.count > 0 ? view<V>(argument, kind) : V();
}

/// The gradient of an optional input: absent where the input is.
template <class V> V mirrored_view(const oneop_argument &argument, const oneop_argument &input, Kind kind = {}) {
  return input.count > 0 ? view<V>(argument, kind) : V();
}

/// Owns the views of a variadic input for the time of a call.
template <class V> class ViewsOwner {
public:
  explicit ViewsOwner(const oneop_argument &argument, Kind kind = {}) {
    views_.reserve(static_cast<std::size_t>(argument.count));
    for (std::int64_t e = 0; e < argument.count; ++e)
      views_.push_back(make(argument.tensors[e], kind, static_cast<V *>(nullptr)));
  }
  Views<V> views() const noexcept { return {views_.data(), static_cast<std::int64_t>(views_.size())}; }

private:
  std::vector<V> views_;
};

inline void get(const oneop_attribute &attribute, double &value) { value = attribute.value.f; }
inline void get(const oneop_attribute &attribute, std::int64_t &value) { value = attribute.value.i; }
inline void get(const oneop_attribute &attribute, bool &value) { value = attribute.value.i != 0; }
inline void get(const oneop_attribute &attribute, std::string_view &value) {
  value = {attribute.value.s.data, static_cast<std::size_t>(attribute.value.s.size)};
}
inline void get(const oneop_attribute &attribute, List<double> &value) {
  value = {attribute.value.fs.data, attribute.value.fs.size};
}
inline void get(const oneop_attribute &attribute, List<std::int64_t> &value) {
  value = {attribute.value.is.data, attribute.value.is.size};
}
inline void get(const oneop_attribute &attribute, Strings &value) {
  value = {attribute.value.ss.data, attribute.value.ss.size};
}
template <class T> void get(const oneop_attribute &attribute, std::optional<T> &value) {
  value.reset();
  if (attribute.kind != ONEOP_NONE)
    get(attribute, value.emplace());
}

#if defined(__CUDACC__)
/// The device of a call's tensors is the current one while this lives, and an error that a launch leaves is this call's.
class OnDevice {
public:
  explicit OnDevice(const oneop_call &call, int32_t n_inputs) {
    cudaGetLastError(); // of somebody else, who did not ask
    for (int32_t i = 0; i < n_inputs && wanted_ < 0; ++i)
      if (call.inputs[i].count > 0)
        wanted_ = call.inputs[i].tensors[0].device.id;
    if (wanted_ < 0)
      return;
    check(cudaGetDevice(&before_));
    if (before_ != wanted_)
      check(cudaSetDevice(wanted_));
  }
  ~OnDevice() {
    if (before_ >= 0 && before_ != wanted_)
      cudaSetDevice(before_);
  }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

  void finish() const { check(cudaGetLastError()); }

private:
  static void check(cudaError_t status) {
    if (status != cudaSuccess)
      throw Error(cuda_message(status));
  }
  int wanted_ = -1, before_ = -1;
};
#endif

/// Runs a kernel; what it throws becomes the call's message. Nothing is thrown from here.
template <class Function> int guarded(const char *op, const oneop_call *call, Function function) noexcept {
  try {
    Context context(*call);
    return function(*call, context);
  } catch (const Error &error) {
    const char *message = error.what();
    return oneop_fail(call->context, "%s: %s", op, *message ? message : "the kernel failed with an empty message");
  } catch (const std::bad_alloc &) {
    return oneop_fail(call->context, "%s: the kernel ran out of memory. Pass smaller inputs.", op);
  } catch (const std::exception &error) {
    return oneop_fail(call->context, "%s: the kernel threw an exception: %s", op, error.what());
  } catch (...) {
    return oneop_fail(call->context, "%s: the kernel threw an exception that is no std::exception.", op);
  }
}

} // namespace oneop::detail

#endif // ONEOP_GLUE_HPP
