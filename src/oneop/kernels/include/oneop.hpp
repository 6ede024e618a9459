// oneop.hpp: what a kernel in C++17 sees of its tensors, its attributes and the runtime that called it.
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
  static float to_float(Storage value) noexcept { return oneop_float16_to_float(value); }
  static Storage from_float(float value) noexcept { return oneop_float16_from_float(value); }
  static Storage from_double(double value) noexcept { return oneop_float16_from_double(value); }
};

struct Bfloat16Format {
  using Storage = oneop_bfloat16;
  static float to_float(Storage value) noexcept { return oneop_bfloat16_to_float(value); }
  static Storage from_float(float value) noexcept { return oneop_bfloat16_from_float(value); }
  static Storage from_double(double value) noexcept { return oneop_bfloat16_from_double(value); }
};

/// A 16-bit floating type that computes as float: it converts to float, and rounds to nearest even when it is assigned.
template <class Format> class Half {
public:
  Half() = default;
  Half(float value) noexcept : storage_(Format::from_float(value)) {}
  Half(double value) noexcept : storage_(Format::from_double(value)) {}
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  Half(Integer value) noexcept : storage_(Format::from_double(odd_double(value))) {}

  operator float() const noexcept { return Format::to_float(storage_); }

  template <class Other> Half &operator+=(const Other &other) noexcept { return *this = float(*this) + wide(other); }
  template <class Other> Half &operator-=(const Other &other) noexcept { return *this = float(*this) - wide(other); }
  template <class Other> Half &operator*=(const Other &other) noexcept { return *this = float(*this) * wide(other); }
  template <class Other> Half &operator/=(const Other &other) noexcept { return *this = float(*this) / wide(other); }

  static Half from_bits(std::uint16_t bits) noexcept {
    Half result;
    result.storage_.bits = bits;
    return result;
  }
  std::uint16_t bits() const noexcept { return storage_.bits; }

private:
  static double wide(double value) noexcept { return value; }
  template <class Other> static float wide(const Other &value) noexcept { return static_cast<float>(value); }

  /// The double that rounds to the same 16 bits as the integer: exact, or odd in the last place where digits are lost.
  template <class Integer> static double odd_double(Integer value) noexcept {
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
  View(T *memory, const std::int64_t *sizes, int output = -1, const char *name = nullptr) noexcept
      : data(memory), output_(output), name_(name), present_(true) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = sizes[d];
  }
  /// A view that reads, from one that writes.
  template <class U, std::enable_if_t<std::is_same_v<const U, T> && !std::is_const_v<U>, int> = 0>
  View(const View<U, N> &other) noexcept
      : data(other.data), output_(other.output_), name_(other.name_), present_(other.present_) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = other.sizes_[d];
  }

  explicit operator bool() const noexcept { return present_; }
  std::int64_t size(int d) const noexcept { return sizes_[d]; }
  std::int64_t stride(int d) const noexcept {
    std::int64_t result = 1;
    for (int e = N - 1; e > d; --e)
      result *= sizes_[e];
    return result;
  }
  std::int64_t numel() const noexcept {
    std::int64_t result = 1;
    for (int d = 0; d < N; ++d)
      result *= sizes_[d];
    return result;
  }
  T *begin() const noexcept { return data; }
  T *end() const noexcept { return data + numel(); }

  template <class... Index> T &operator()(Index... index) const noexcept {
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
  StridedView(T *memory, const std::int64_t *sizes, const std::int64_t *strides) noexcept
      : data(memory), present_(true) {
    for (int d = 0; d < N; ++d)
      sizes_[d] = sizes[d], strides_[d] = strides[d];
  }

  explicit operator bool() const noexcept { return present_; }
  std::int64_t size(int d) const noexcept { return sizes_[d]; }
  std::int64_t stride(int d) const noexcept { return strides_[d]; }
  std::int64_t numel() const noexcept {
    std::int64_t result = 1;
    for (int d = 0; d < N; ++d)
      result *= sizes_[d];
    return result;
  }

  template <class... Index> T &operator()(Index... index) const noexcept {
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

/// Some values in a row, which somebody else owns: the attribute kinds list[float] and list[int].
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

/// What the runtime that calls a kernel lends it for one call.
class Context {
public:
  explicit Context(const oneop_call &call) noexcept : call_(call), host_(call.context) {}
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

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

  /// Memory of that many bytes, aligned to 64, until the kernel returns. Not inside parallel_for.
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

  /// A cudaStream_t on a CUDA device; null on the CPU.
  void *stream() const noexcept { return host_->stream; }

private:
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

  const oneop_call &call_;
  oneop_context *host_;
};

} // namespace oneop

/// The limits that kernels ask for: std::numeric_limits<T>::lowest(), infinity(), ...
template <> class std::numeric_limits<oneop::float16> : public std::numeric_limits<float> {
public:
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
  static oneop::float16 min() noexcept { return oneop::float16::from_bits(0x0400); }
  static oneop::float16 lowest() noexcept { return oneop::float16::from_bits(0xfbff); }
  static oneop::float16 max() noexcept { return oneop::float16::from_bits(0x7bff); }
  static oneop::float16 epsilon() noexcept { return oneop::float16::from_bits(0x1400); }
  static oneop::float16 round_error() noexcept { return oneop::float16(0.5f); }
  static oneop::float16 infinity() noexcept { return oneop::float16::from_bits(0x7c00); }
  static oneop::float16 quiet_NaN() noexcept { return oneop::float16::from_bits(0x7e00); }
  static oneop::float16 signaling_NaN() noexcept { return oneop::float16::from_bits(0x7d00); }
  static oneop::float16 denorm_min() noexcept { return oneop::float16::from_bits(0x0001); }
};

template <> class std::numeric_limits<oneop::bfloat16> : public std::numeric_limits<float> {
public:
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static oneop::bfloat16 min() noexcept { return oneop::bfloat16::from_bits(0x0080); }
  static oneop::bfloat16 lowest() noexcept { return oneop::bfloat16::from_bits(0xff7f); }
  static oneop::bfloat16 max() noexcept { return oneop::bfloat16::from_bits(0x7f7f); }
  static oneop::bfloat16 epsilon() noexcept { return oneop::bfloat16::from_bits(0x3c00); }
  static oneop::bfloat16 round_error() noexcept { return oneop::bfloat16(0.5f); }
  static oneop::bfloat16 infinity() noexcept { return oneop::bfloat16::from_bits(0x7f80); }
  static oneop::bfloat16 quiet_NaN() noexcept { return oneop::bfloat16::from_bits(0x7fc0); }
  static oneop::bfloat16 signaling_NaN() noexcept { return oneop::bfloat16::from_bits(0x7fa0); }
  static oneop::bfloat16 denorm_min() noexcept { return oneop::bfloat16::from_bits(0x0001); }
};

#endif // ONEOP_HPP
