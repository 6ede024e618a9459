// oneop.hpp: what a kernel in C++17 or CUDA sees of its tensors, its attributes and the runtime that called it.
#ifndef ONEOP_HPP
#define ONEOP_HPP

#include "oneop.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace oneop {

/// What Context::fail throws. A kernel may throw it too.
class Error : public std::exception {
public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char *what() const noexcept override { return message_.c_str(); }

private:
  std::string message_;
};

namespace detail {

struct Float16Format {
  using Storage = oneop_float16;
#if defined(__CUDA_ARCH__)
  __device__ static float to_float(Storage value) noexcept {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
  }
  __device__ static Storage from_float(float value) noexcept {
    Storage result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
  __device__ static Storage from_double(double value) noexcept {
    Storage result;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(result.bits) : "d"(value));
    return result;
  }
#else
  ONEOP_HOST_DEVICE static float to_float(Storage value) noexcept { return oneop_float16_to_float(value); }
  ONEOP_HOST_DEVICE static Storage from_float(float value) noexcept { return oneop_float16_from_float(value); }
  ONEOP_HOST_DEVICE static Storage from_double(double value) noexcept { return oneop_float16_from_double(value); }
#endif
};

struct Bfloat16Format {
  using Storage = oneop_bfloat16;
  ONEOP_HOST_DEVICE static float to_float(Storage value) noexcept { return oneop_bfloat16_to_float(value); }
  ONEOP_HOST_DEVICE static Storage from_float(float value) noexcept { return oneop_bfloat16_from_float(value); }
  ONEOP_HOST_DEVICE static Storage from_double(double value) noexcept { return oneop_bfloat16_from_double(value); }
};

/// A 16-bit floating type that computes as float: it converts to float, and rounds to nearest even when it is assigned.
template <class Format> class Half {
public:
  Half() = default;
  ONEOP_HOST_DEVICE Half(float value) noexcept : storage_(Format::from_float(value)) {}
  ONEOP_HOST_DEVICE Half(double value) noexcept : storage_(Format::from_double(value)) {}
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  ONEOP_HOST_DEVICE Half(Integer value) noexcept : storage_(Format::from_double(odd_double(value))) {}

  ONEOP_HOST_DEVICE operator float() const noexcept { return Format::to_float(storage_); }

  template <class Other> ONEOP_HOST_DEVICE Half &operator+=(const Other &other) noexcept {
    return *this = float(*this) + wide(other);
  }
  template <class Other> ONEOP_HOST_DEVICE Half &operator-=(const Other &other) noexcept {
    return *this = float(*this) - wide(other);
  }
  template <class Other> ONEOP_HOST_DEVICE Half &operator*=(const Other &other) noexcept {
    return *this = float(*this) * wide(other);
  }
  template <class Other> ONEOP_HOST_DEVICE Half &operator/=(const Other &other) noexcept {
    return *this = float(*this) / wide(other);
  }

  ONEOP_HOST_DEVICE static Half from_bits(std::uint16_t bits) noexcept {
    Half result;
    result.storage_.bits = bits;
    return result;
  }
  ONEOP_HOST_DEVICE std::uint16_t bits() const noexcept { return storage_.bits; }

private:
  ONEOP_HOST_DEVICE static double wide(double value) noexcept { return value; }
  template <class Other> ONEOP_HOST_DEVICE static float wide(const Other &value) noexcept {
    return static_cast<float>(value);
  }

  /// The double that rounds to the same 16 bits as the integer: exact, or odd in the last place where digits are lost.
  template <class Integer> ONEOP_HOST_DEVICE static double odd_double(Integer value) noexcept {
    if constexpr (sizeof(Integer) < 8) {
      return static_cast<double>(value);
    } else {
      const bool negative = value < Integer(0);
      std::uint64_t magnitude = static_cast<std::uint64_t>(value);
      if (negative)
        magnitude = 0 - magnitude;
      if (magnitude >> 53 != 0) {
        const bool lost = (magnitude & 2047u) != 0;
        magnitude = (magnitude >> 11 | (lost ? 1u : 0u)) << 11;
      }
      const double result = static_cast<double>(magnitude);
      return negative ? -result : result;
    }
  }

  typename Format::Storage storage_;
};

} // namespace detail

using float16 = detail::Half<detail::Float16Format>;
using bfloat16 = detail::Half<detail::Bfloat16Format>;
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>, "float16 is 16 plain bits");
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>, "bfloat16 is 16 plain bits");

/// A contiguous tensor of N dimensions. `a.x(i, j)` is an element; an absent optional input tests false.
template <class T, int N> class View {
public:
  using value_type = std::remove_const_t<T>;
  static constexpr int ndim = N;

  T *data = nullptr;

  View() = default;
  ONEOP_HOST_DEVICE View(T *memory, const std::int64_t *sizes, int output = -1, const char *name = nullptr) noexcept
      : data(memory), output_(output), name_(name), present_(true) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = sizes[d];
  }
  /// A view that reads, from one that writes.
  template <class U, std::enable_if_t<std::is_same_v<const U, T> && !std::is_const_v<U>, int> = 0>
  ONEOP_HOST_DEVICE View(const View<U, N> &other) noexcept
      : data(other.data), output_(other.output_), name_(other.name_), present_(other.present_) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = other.sizes_[d];
  }

  ONEOP_HOST_DEVICE explicit operator bool() const noexcept { return present_; }
  ONEOP_HOST_DEVICE std::int64_t size(int d) const noexcept { return sizes_[d]; }
  ONEOP_HOST_DEVICE std::int64_t stride(int d) const noexcept {
    std::int64_t result = 1;
    for (int e = N - 1; e > d; --e)
      result *= sizes_[e];
    return result;
  }
  ONEOP_HOST_DEVICE std::int64_t numel() const noexcept {
    std::int64_t result = 1;
    for (int d = 0; d < N; ++d)
      result *= sizes_[d];
    return result;
  }
  ONEOP_HOST_DEVICE T *begin() const noexcept { return data; }
  ONEOP_HOST_DEVICE T *end() const noexcept { return data + numel(); }

  template <class... Index> ONEOP_HOST_DEVICE T &operator()(Index... index) const noexcept {
    static_assert(sizeof...(Index) == N, "one index for each dimension");
    static_assert((std::is_integral_v<Index> && ...), "indexes are integers");
    std::int64_t offset = 0;
    [[maybe_unused]] int d = 0;
    ((offset = offset * sizes_[d++] + static_cast<std::int64_t>(index)), ...);
    return data[offset];
  }

private:
  template <class, int> friend class View;
  friend class Context;

  std::int64_t sizes_[N > 0 ? N : 1] = {};
  int output_ = -1; // its number, where Context::resize may be called
  const char *name_ = nullptr;
  bool present_ = false;
};

/// A tensor of N dimensions with a stride, counted in elements, for each: inputs of a definition with layout="strided".
template <class T, int N> class StridedView {
public:
  using value_type = std::remove_const_t<T>;
  static constexpr int ndim = N;

  T *data = nullptr;

  StridedView() = default;
  ONEOP_HOST_DEVICE StridedView(T *memory, const std::int64_t *sizes, const std::int64_t *strides) noexcept
      : data(memory), present_(true) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = sizes[d], strides_[d] = strides[d];
  }

  ONEOP_HOST_DEVICE explicit operator bool() const noexcept { return present_; }
  ONEOP_HOST_DEVICE std::int64_t size(int d) const noexcept { return sizes_[d]; }
  ONEOP_HOST_DEVICE std::int64_t stride(int d) const noexcept { return strides_[d]; }
  ONEOP_HOST_DEVICE std::int64_t numel() const noexcept {
    std::int64_t result = 1;
    for (int d = 0; d < N; ++d)
      result *= sizes_[d];
    return result;
  }

  template <class... Index> ONEOP_HOST_DEVICE T &operator()(Index... index) const noexcept {
    static_assert(sizeof...(Index) == N, "one index for each dimension");
    static_assert((std::is_integral_v<Index> && ...), "indexes are integers");
    std::int64_t offset = 0;
    [[maybe_unused]] int d = 0;
    ((offset += strides_[d++] * static_cast<std::int64_t>(index)), ...);
    return data[offset];
  }

private:
  std::int64_t sizes_[N > 0 ? N : 1] = {};
  std::int64_t strides_[N > 0 ? N : 1] = {};
  bool present_ = false;
};

/// Some values in a row, which somebody else owns: the attribute kinds list[float] and list[int]. In the host's memory: a
/// CUDA kernel is given an Array of them.
template <class T> class List {
public:
  List() = default;
  List(const T *data, std::int64_t size) noexcept : data_(data), size_(size) {}

  const T *data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T &operator[](std::int64_t index) const noexcept { return data_[index]; }
  const T *begin() const noexcept { return data_; }
  const T *end() const noexcept { return data_ + size_; }

private:
  const T *data_ = nullptr;
  std::int64_t size_ = 0;
};

/// The tensors of a variadic input, or their gradients.
template <class View> using Views = List<View>;

/// Up to N values, as a parameter of a CUDA kernel: `oneop::Array<double, 8>(a.scales)`, or the views of a variadic input.
template <class T, int N> class Array {
public:
  explicit Array(const List<T> &values) : size_(values.size()) {
    if (size_ > N)
      throw Error("the kernel takes up to " + std::to_string(N) + " values or tensors in a list, and is given " +
                  std::to_string(size_));
    for (std::int64_t i = 0; i < size_; ++i)
      data_[i] = values[i];
  }
  ONEOP_HOST_DEVICE std::int64_t size() const noexcept { return size_; }
  ONEOP_HOST_DEVICE const T &operator[](std::int64_t index) const noexcept { return data_[index]; }

private:
  T data_[N] = {};
  std::int64_t size_;
};

/// The attribute kind list[str]; elements are std::string_view.
class Strings {
public:
  class Iterator {
  public:
    explicit Iterator(const oneop_string *at) noexcept : at_(at) {}
    std::string_view operator*() const noexcept { return {at_->data, static_cast<std::size_t>(at_->size)}; }
    Iterator &operator++() noexcept {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator &other) const noexcept { return at_ == other.at_; }
    bool operator!=(const Iterator &other) const noexcept { return at_ != other.at_; }

  private:
    const oneop_string *at_;
  };

  Strings() = default;
  Strings(const oneop_string *data, std::int64_t size) noexcept : data_(data), size_(size) {}

  std::int64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::string_view operator[](std::int64_t index) const noexcept { return *Iterator(data_ + index); }
  Iterator begin() const noexcept { return Iterator(data_); }
  Iterator end() const noexcept { return Iterator(data_ + size_); }

private:
  const oneop_string *data_ = nullptr;
  std::int64_t size_ = 0;
};

#if defined(__CUDACC__)
namespace detail {

template <class> inline constexpr bool never = false;

template <class F> void refuse_parallel_for() {
  static_assert(never<F>,
                "ctx.parallel_for runs on the CPU, which does not see the memory of CUDA tensors; in a .cu file "
                "launch a __global__ function on ctx.stream()");
}

inline std::string cuda_message(cudaError_t status) {
  return std::string("CUDA reports ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
}

} // namespace detail
#endif

/// What the runtime that calls a kernel lends it for one call.
class Context {
public:
  explicit Context(const oneop_call &call) noexcept : call_(call), host_(call.context) {}
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

#if defined(__CUDACC__)
  template <class F> void parallel_for(std::int64_t, std::int64_t, F &&) { detail::refuse_parallel_for<F>(); }
  template <class F> void parallel_for(std::int64_t, std::int64_t, std::int64_t, F &&) {
    detail::refuse_parallel_for<F>();
  }

  /// Ends the call where a function of CUDA's failed: `ctx.check(cudaMemcpyAsync(...))`. After the kernel, launches are
  /// checked anyway.
  void check(cudaError_t status) const {
    if (status != cudaSuccess)
      throw Error(detail::cuda_message(status));
  }

  /// What every launch and copy is put on: `f<<<grid, block, 0, ctx.stream()>>>(...)`.
  cudaStream_t stream() const noexcept { return static_cast<cudaStream_t>(host_->stream); }
#else
  /// Calls f(b, e) on pieces that cover [begin, end), on the runtime's threads. An exception of f ends the call with it.
  template <class F> void parallel_for(std::int64_t begin, std::int64_t end, F &&f) { parallel_for(begin, end, 1, f); }

  /// The same, where no piece but the last is smaller than `grain`.
  template <class F> void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, F &&f) {
    if (begin >= end)
      return;
    Body<std::remove_reference_t<F>> body{&f, {}, {}};
    host_->parallel_for(host_, begin, end, grain < 1 ? 1 : grain, body.call, &body);
    if (body.failed.load())
      std::rethrow_exception(body.error);
  }

  /// A cudaStream_t on a CUDA device; null on the CPU.
  void *stream() const noexcept { return host_->stream; }
#endif

  /// Memory of that many bytes, aligned to 64, until the kernel returns. Not inside parallel_for. In a .cu file it is the
  /// GPU's: work that was put on the stream before the return may use it.
  void *scratch(std::int64_t bytes) {
    if (bytes < 0)
      throw Error("the kernel asks for " + std::to_string(bytes) + " bytes of scratch memory");
    void *memory = host_->scratch(host_, bytes > 0 ? static_cast<std::size_t>(bytes) : 1);
    if (memory == nullptr)
      throw std::bad_alloc();
    return memory;
  }

  /// Memory for `count` values, which are not initialised.
  template <class T> T *scratch(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64, "scratch memory is for plain values");
    if (count > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T)))
      throw std::bad_alloc();
    return static_cast<T *>(scratch(count * static_cast<std::int64_t>(sizeof(T))));
  }

  /// Gives an output with `?` dimensions its sizes; the view that comes back has its memory. Not inside parallel_for.
  template <class T, int N>
  [[nodiscard]] View<T, N> resize(const View<T, N> &output, std::initializer_list<std::int64_t> sizes) {
    if (sizes.size() != static_cast<std::size_t>(N))
      throw Error("ctx.resize is given " + std::to_string(sizes.size()) + " sizes for an output of " +
                  std::to_string(N) + " dimensions");
    if (output.output_ < 0)
      throw Error("ctx.resize is for outputs with `?` dimensions; the sizes of this one are known");
    const oneop_output description{output.output_, N, output.sizes_, call_.outputs[output.output_].tensors,
                                   output.name_};
    void *memory = oneop_resize(host_, &description, sizes.begin());
    if (memory == nullptr)
      throw Error("the runtime cannot resize an output");
    return View<T, N>(static_cast<T *>(memory), sizes.begin(), output.output_, output.name_);
  }

  /// Ends the call with this message. Inside parallel_for too.
  [[noreturn]] void fail(const std::string &message) { throw Error(message); }

private:
#if !defined(__CUDACC__)
  template <class F> struct Body {
    F *f;
    std::atomic<bool> failed;
    std::exception_ptr error;
    std::atomic_flag first = ATOMIC_FLAG_INIT;

    static void call(void *data, std::int64_t begin, std::int64_t end) noexcept {
      Body &body = *static_cast<Body *>(data);
      if (body.failed.load(std::memory_order_relaxed))
        return;
      try {
        (*body.f)(begin, end);
      } catch (...) {
        if (!body.first.test_and_set()) {
          body.error = std::current_exception();
          body.failed.store(true);
        }
      }
    }
  };
#endif

  const oneop_call &call_;
  oneop_context *host_;
};

} // namespace oneop

/// The limits that kernels ask for: std::numeric_limits<T>::lowest(), infinity(), ...
template <> class std::numeric_limits<oneop::float16> : public std::numeric_limits<float> {
public:
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
  ONEOP_HOST_DEVICE static oneop::float16 min() noexcept { return oneop::float16::from_bits(0x0400); }
  ONEOP_HOST_DEVICE static oneop::float16 lowest() noexcept { return oneop::float16::from_bits(0xfbff); }
  ONEOP_HOST_DEVICE static oneop::float16 max() noexcept { return oneop::float16::from_bits(0x7bff); }
  ONEOP_HOST_DEVICE static oneop::float16 epsilon() noexcept { return oneop::float16::from_bits(0x1400); }
  ONEOP_HOST_DEVICE static oneop::float16 round_error() noexcept { return oneop::float16(0.5f); }
  ONEOP_HOST_DEVICE static oneop::float16 infinity() noexcept { return oneop::float16::from_bits(0x7c00); }
  ONEOP_HOST_DEVICE static oneop::float16 quiet_NaN() noexcept { return oneop::float16::from_bits(0x7e00); }
  ONEOP_HOST_DEVICE static oneop::float16 signaling_NaN() noexcept { return oneop::float16::from_bits(0x7d00); }
  ONEOP_HOST_DEVICE static oneop::float16 denorm_min() noexcept { return oneop::float16::from_bits(0x0001); }
};

template <> class std::numeric_limits<oneop::bfloat16> : public std::numeric_limits<float> {
public:
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  ONEOP_HOST_DEVICE static oneop::bfloat16 min() noexcept { return oneop::bfloat16::from_bits(0x0080); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 lowest() noexcept { return oneop::bfloat16::from_bits(0xff7f); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 max() noexcept { return oneop::bfloat16::from_bits(0x7f7f); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 epsilon() noexcept { return oneop::bfloat16::from_bits(0x3c00); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 round_error() noexcept { return oneop::bfloat16(0.5f); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 infinity() noexcept { return oneop::bfloat16::from_bits(0x7f80); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 quiet_NaN() noexcept { return oneop::bfloat16::from_bits(0x7fc0); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 signaling_NaN() noexcept { return oneop::bfloat16::from_bits(0x7fa0); }
  ONEOP_HOST_DEVICE static oneop::bfloat16 denorm_min() noexcept { return oneop::bfloat16::from_bits(0x0001); }
};

#endif // ONEOP_HPP
