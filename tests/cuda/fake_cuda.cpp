// A kind of device that calls itself CUDA in a torch that was built without it: two devices in the machine's own memory, with
// current devices and streams as a guard keeps them. Every operator of torch runs on the CPU, on the same memory. With it the
// tests walk each step that a call on a GPU takes through torch's dispatcher, autograd and runtime.cpp, but for the GPU.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using c10::Device;
using c10::Stream;

constexpr int n_devices = 2;
thread_local c10::DeviceIndex current = 0;
thread_local c10::StreamId streams[n_devices] = {};
std::atomic<int64_t> allocated{0}; // blocks that live
std::atomic<int64_t> requests{0};

Device cuda(c10::DeviceIndex index) { return Device(c10::DeviceType::CUDA, index); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  Device exchangeDevice(Device device) const override {
    const auto before = current;
    current = device.index();
    return cuda(before);
  }
  Device getDevice() const override { return cuda(current); }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Stream getStream(Device device) const override { return Stream(Stream::UNSAFE, device, streams[device.index()]); }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::UNSAFE, device, 0); }
  Stream exchangeStream(Stream stream) const override {
    const auto index = stream.device_index();
    const auto before = streams[index];
    streams[index] = stream.id();
    return Stream(Stream::UNSAFE, stream.device(), before);
  }
  // As a cudaStream_t would: null for the default stream.
  void *getStreamNativeHandle(const Stream stream) const override {
    return stream.id() == 0
               ? nullptr
               : reinterpret_cast<void *>(static_cast<intptr_t>(stream.device_index() + 1) * 4096 + stream.id());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return n_devices; }
  void destroyEvent(void *, const c10::DeviceIndex) const noexcept override {}
  void record(void **, const Stream &, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void *, const Stream &) const override {}
  bool queryEvent(void *) const override { return true; }
  bool queryStream(const Stream &) const override { return true; }
  void synchronizeStream(const Stream &) const override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

// So that torch takes CUDA for its accelerator: autograd then runs the nodes of each device in a thread of its own.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return n_devices; }
  c10::DeviceIndex current_device() const override { return current; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(current, device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks);

struct Memory final : c10::Allocator {
  static void release(void *memory) {
    std::free(memory);
    --allocated;
  }
  c10::DataPtr allocate(size_t size) override {
    ++requests;
    if (size == 0)
      return {nullptr, nullptr, &release_nothing, cuda(current)};
    void *memory = nullptr;
    if (size > size_t{1} << 40 || posix_memalign(&memory, 512, size) != 0)
      TORCH_CHECK(false, "the fake GPU has no memory of ", size, " bytes");
    ++allocated;
    return {memory, memory, &release, cuda(current)};
  }
  static void release_nothing(void *) {}
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void *to, const void *from, size_t size) const override { default_copy_data(to, from, size); }
};

Memory memory;

Tensor fresh(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, Device device) {
  const c10::DeviceGuard guard(device);
  int64_t last = 0;
  bool empty = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    empty = empty || sizes[d] == 0;
    last += (sizes[d] - 1) * strides[d];
  }
  const auto bytes = empty ? 0 : static_cast<size_t>(last + 1) * c10::elementSize(type);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       memory.allocate(bytes), &memory, true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

Tensor fresh_like(const Tensor &tensor, Device device) {
  return fresh(tensor.sizes(), tensor.strides(), tensor.scalar_type(), device);
}

Device wanted(std::optional<Device> device) { return device && device->has_index() ? *device : cuda(current); }

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat>) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return fresh(sizes, strides, type.value_or(at::ScalarType::Float), wanted(device));
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  return fresh(sizes, strides, type.value_or(at::ScalarType::Float), wanted(device));
}

// The same memory, as a tensor of the CPU.
Tensor on_cpu(const Tensor &tensor) {
  if (!tensor.defined() || !tensor.is_cuda())
    return tensor;
  static float nothing[16] = {};
  auto *data = tensor.storage().data_ptr().get() ? tensor.unsafeGetTensorImpl()->mutable_data() : nothing;
  auto alias = at::from_blob(data, tensor.sizes(), tensor.strides(),
                             at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
  alias._set_neg(tensor.is_neg());
  return alias;
}

Tensor &copy(Tensor &self, const Tensor &source, bool) {
  auto to = on_cpu(self);
  to.copy_(on_cpu(source));
  return self;
}

Tensor view(const Tensor &self, at::IntArrayRef sizes) { return at::native::view(self, sizes); }

Tensor as_strided(const Tensor &self, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Scalar item(const Tensor &self) { return on_cpu(self).item(); }

const Tensor &resize(const Tensor &self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  TORCH_CHECK(self.numel() == 0 || self.sizes() == sizes, "the fake GPU resizes what is empty only");
  auto made = empty(sizes, self.scalar_type(), {}, self.device(), {}, {});
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
  self.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
  return self;
}

// Any other operator: the CPU's, on the same memory.
void everything_else(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &schema = op.schema();
  const auto count = schema.arguments().size();
  std::vector<c10::IValue> given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  Device device = cuda(current);
  const auto convert = [&](const Tensor &tensor) {
    if (tensor.defined() && tensor.is_cuda())
      device = tensor.device();
    return on_cpu(tensor);
  };
  std::vector<std::pair<Tensor, Tensor>> growing; // empty results that the operator gives their size, and its own
  for (size_t i = 0; i < count; ++i) {
    auto &value = (*stack)[stack->size() - count + i];
    const auto *its = schema.arguments()[i].alias_info();
    if (value.isTensor() && its && its->isWrite() && value.toTensor().is_cuda() && value.toTensor().numel() == 0) {
      const auto &result = value.toTensor();
      device = result.device();
      growing.emplace_back(result, at::empty({0}, at::TensorOptions().dtype(result.scalar_type())));
      value = growing.back().second;
    } else if (value.isTensor()) {
      value = convert(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor &one : value.toTensorVector())
        list.push_back(convert(one));
      value = list;
    } else if (value.isList() && value.toListRef().size() > 0) {
      bool tensors = false;
      for (const auto &one : value.toListRef())
        tensors = tensors || one.isTensor();
      if (!tensors)
        continue;
      c10::List<std::optional<Tensor>> list;
      for (const auto &one : value.toListRef())
        list.push_back(one.isTensor() ? std::optional<Tensor>(convert(one.toTensor())) : std::nullopt);
      value = list;
    } else if (value.isDevice()) {
      device = value.toDevice();
      value = Device(c10::DeviceType::CPU);
    }
  }
  op.callBoxed(stack);
  for (auto &[result, own] : growing) {
    auto made = fresh_like(own, result.device());
    on_cpu(made).copy_(own);
    result.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
    result.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
  }
  const auto back = [&](const Tensor &result) {
    if (!result.defined() || !result.device().is_cpu())
      return result;
    auto made = fresh_like(result, device);
    on_cpu(made).copy_(result);
    return made;
  };
  const auto &returns = schema.returns();
  const auto first = stack->size() - returns.size();
  for (size_t r = 0; r < returns.size(); ++r) {
    auto &value = (*stack)[first + r];
    const auto *alias = returns[r].alias_info();
    if (alias && alias->isWrite()) { // an argument, changed in place
      for (size_t i = 0; i < count; ++i) {
        const auto *its = schema.arguments()[i].alias_info();
        if (its && its->isWrite() && its->beforeSets() == alias->beforeSets())
          value = given[i];
      }
    } else if (value.isTensor()) {
      TORCH_CHECK(!alias, op.operator_name(), " makes a view, which the fake GPU does not know");
      value = back(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor &one : value.toTensorVector())
        list.push_back(back(one));
      value = list;
    }
  }
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&everything_else>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy);
  m.impl("view", view);
  m.impl("_reshape_alias", [](const Tensor &self, at::IntArrayRef sizes, at::IntArrayRef strides) {
    return at::native::as_strided_tensorimpl(self, sizes, strides, self.storage_offset());
  });
  m.impl("as_strided", as_strided);
  m.impl("_local_scalar_dense", item);
  m.impl("resize_", resize);
}

} // namespace

extern "C" {
__attribute__((visibility("default"))) void fake_cuda_set_device(int index) {
  current = static_cast<c10::DeviceIndex>(index);
}
__attribute__((visibility("default"))) int fake_cuda_device() { return current; }
__attribute__((visibility("default"))) void fake_cuda_set_stream(int device, int64_t id) { streams[device] = id; }
__attribute__((visibility("default"))) int64_t fake_cuda_blocks() { return allocated; }
__attribute__((visibility("default"))) int64_t fake_cuda_requests() { return requests; }
}
