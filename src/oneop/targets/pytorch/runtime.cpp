// The PyTorch runtime: one library that serves every operator, as boxed kernels over the C table in oneop.h.
//
// For each operator it registers two kernels with torch's dispatcher. `Compute` (CompositeExplicitAutograd) checks the
// inputs, lets the kernel library work out the shapes, allocates and runs, on the CPU or on a GPU (it is compiled with
// any build of torch, and knows CUDA as a kind of device only); whatever has no kernel goes to the operator's
// twin NAME_reference. `Differentiate` (Autograd) records one generic node, which calls the gradient operator or
// differentiates the reference. Nothing here knows Python, so that C++ programs can load it too; where there is Python,
// call.cpp lends what hooks.h lists.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>
#include <torch/version.h>

#include "hooks.h"
#include "oneop.h"

ONEOP_ASSERT_LAYOUT;

namespace {

using at::IValue;
using at::Tensor;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::ScalarType;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;
template <class T, unsigned N> using Small = c10::SmallVector<T, N>;
using Arguments = at::ArrayRef<IValue>;

// Node lost std::shared_ptr in torch 2.13. Everything that depends on it stands here.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
template <class T> using NodePointer = c10::intrusive_ptr<T>;
template <class T, class... A> NodePointer<T> make_node(A &&...arguments) {
  return c10::make_intrusive<T>(std::forward<A>(arguments)...);
}
#else
template <class T> using NodePointer = std::shared_ptr<T>;
template <class T, class... A> NodePointer<T> make_node(A &&...arguments) {
  return NodePointer<T>(new T(std::forward<A>(arguments)...), torch::autograd::deleteNode);
}
#endif

// ---- Errors ----------------------------------------------------------------------------------------------------------

std::atomic<const oneop_torch_hooks *> python{nullptr};

[[noreturn]] void fail_call(const std::string &message) {
  if (const auto *hooks = python.load(std::memory_order_acquire))
    hooks->fail(message.c_str());
  throw c10::Error(message, c10::Backtrace());
}

struct AttachError final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts> std::string text(const Parts &...parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

std::string shape_text(at::IntArrayRef sizes) { // as Python writes a tuple
  std::string result = "(";
  for (size_t i = 0; i < sizes.size(); ++i)
    result += (i ? ", " : "") + std::to_string(sizes[i]);
  return result + (sizes.size() == 1 ? ",)" : ")");
}

// ---- Element types ---------------------------------------------------------------------------------------------------

struct ElementFact {
  ScalarType type;
  oneop_dtype dlpack;
  const char *name;
};
constexpr ElementFact element_facts[] = {
    {ScalarType::Float, {2, 32, 1}, "float32"}, {ScalarType::Double, {2, 64, 1}, "float64"},
    {ScalarType::Half, {2, 16, 1}, "float16"},  {ScalarType::BFloat16, {4, 16, 1}, "bfloat16"},
    {ScalarType::Char, {0, 8, 1}, "int8"},      {ScalarType::Short, {0, 16, 1}, "int16"},
    {ScalarType::Int, {0, 32, 1}, "int32"},     {ScalarType::Long, {0, 64, 1}, "int64"},
    {ScalarType::Byte, {1, 8, 1}, "uint8"},     {ScalarType::UInt16, {1, 16, 1}, "uint16"},
    {ScalarType::UInt32, {1, 32, 1}, "uint32"}, {ScalarType::UInt64, {1, 64, 1}, "uint64"},
    {ScalarType::Bool, {6, 8, 1}, "bool"},
};

const ElementFact *fact_of(ScalarType type) {
  for (const auto &fact : element_facts)
    if (fact.type == type)
      return &fact;
  return nullptr;
}

std::string dtype_name(ScalarType type) {
  if (const auto *fact = fact_of(type))
    return fact->name;
  switch (type) {
  case ScalarType::ComplexHalf:
    return "complex32";
  case ScalarType::ComplexFloat:
    return "complex64";
  case ScalarType::ComplexDouble:
    return "complex128";
  default:
    return c10::toString(type);
  }
}

bool same(oneop_dtype a, oneop_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

ScalarType scalar_type(oneop_dtype dtype) {
  for (const auto &fact : element_facts)
    if (same(fact.dlpack, dtype))
      return fact.type;
  throw AttachError(text("unknown element type (", int(dtype.code), ", ", int(dtype.bits), ")"));
}

// ---- What the definition says ----------------------------------------------------------------------------------------

enum class Arity { required, optional, variadic };

struct Element {
  std::string name;
  std::vector<ScalarType> admitted;
  bool may_be_floating() const {
    for (auto type : admitted)
      if (c10::isFloatingType(type))
        return true;
    return false;
  }
};
struct InputFacts {
  std::string name;
  Arity arity = Arity::required;
  int32_t element = 0;
  bool batch = false; // leading dimensions that a kernel sees as one
  int64_t own_dims = 0;
};
struct AttributeFacts {
  std::string name;
  int64_t kind = ONEOP_NONE;
  bool optional = false;
};
struct OutputFacts {
  std::string name;
  int32_t element = 0;
  int32_t mirrors = -1;          // the input whose gradient this is
  std::vector<std::string> dims; // the text of each dimension; "?k" is known after the kernel ran
};

// How the gradient operator is called: gradients of some outputs, the inputs, some outputs, the attributes, `needs`.
struct GradientPlan {
  OperatorHandle op;
  std::vector<int32_t> gradients;     // the outputs whose gradients come first
  std::vector<int32_t> saved_outputs; // the outputs it names
  std::vector<int32_t> results;       // the input each of its results belongs to
};

// A kernel of a library's table, and the dtypes it is for: one a dtype variable.
struct Kernel {
  oneop_function run;
  std::vector<ScalarType> types;
};
using Kernels = std::vector<Kernel>;
const Kernels no_kernels;

// One operator with its kernel library. Immutable, but for `cuda`, and never freed: calls and graphs may hold it.
struct Binding {
  std::string name, fingerprint, library, gradient_name;
  bool strided = false, native_only = false;
  bool served = false; // in a program without Python: there is no reference
  std::vector<Element> elements;
  std::vector<InputFacts> inputs;
  std::vector<AttributeFacts> attributes;
  std::vector<OutputFacts> outputs;

  const oneop_operator *table = nullptr;
  Kernels cpu;
  bool asks_for_cuda = false; // there are CUDA kernels, in a library of their own that the first call on a GPU builds
  mutable std::atomic<const Kernels *> cuda{nullptr}; // NULL before that
  std::optional<OperatorHandle> reference;
  std::optional<GradientPlan> gradient;
  std::string node_name;

  size_t arguments() const { return inputs.size() + attributes.size(); }
};

// What the dispatcher's kernels hold: it outlives every library. When the operator is defined again, `binding` is taken
// out, and the next call asks Python for the new one: kernels are built when they are called.
struct Operator {
  std::string name;
  std::atomic<const Binding *> binding{nullptr};

  const Binding &current() const {
    const Binding *found = binding.load(std::memory_order_acquire);
    while (C10_UNLIKELY(!found)) { // only Python takes a binding out, so it has lent its hooks
      python.load(std::memory_order_acquire)->prepare(name.c_str());
      found = binding.load(std::memory_order_acquire);
    }
    return *found;
  }
};

// ---- Inputs ----------------------------------------------------------------------------------------------------------

// Calls visit(input, position in its list, tensor) for each tensor among the arguments; an absent one is undefined.
template <class Visit> void for_each_tensor(const Binding &self, Arguments arguments, Visit &&visit) {
  static const Tensor absent;
  for (size_t i = 0; i < self.inputs.size(); ++i) {
    const IValue &value = arguments[i];
    if (value.isTensor()) {
      visit(i, size_t{0}, value.toTensor());
    } else if (value.isNone()) {
      visit(i, size_t{0}, absent);
    } else {
      auto list = value.toListRef();
      for (size_t j = 0; j < list.size(); ++j)
        visit(i, j, list[j].toTensor());
    }
  }
}

std::string input_name(const Binding &self, size_t input, size_t position) {
  const auto &facts = self.inputs[input];
  return facts.arity == Arity::variadic ? text("`", facts.name, "[", position, "]`") : text("`", facts.name, "`");
}

[[noreturn]] void refuse_undefined(const Binding &self, size_t input, size_t position) {
  fail_call(text(self.name, ": input ", input_name(self, input, position), " is None, not a tensor. Pass a tensor."));
}

[[noreturn]] void refuse_layout(const Binding &self, size_t input, size_t position, const Tensor &tensor) {
  const auto name = input_name(self, input, position);
  if (tensor.is_quantized())
    fail_call(text(self.name, ": input ", name, " is quantized; kernels take plain tensors. Pass its dequantize()."));
  if (tensor.is_nested())
    fail_call(
        text(self.name, ": input ", name,
             " is a nested tensor; kernels take dense tensors. Pass its to_padded_tensor(0.0), or call once a part."));
  fail_call(text(self.name, ": input ", name, " has layout ", tensor.layout(),
                 "; kernels take dense tensors. Pass its to_dense()."));
}

[[noreturn]] void refuse_dtype(const Binding &self, size_t input, size_t position, ScalarType given) {
  const auto &element = self.elements[static_cast<size_t>(self.inputs[input].element)];
  std::string admitted;
  for (auto type : element.admitted)
    admitted += text(admitted.empty() ? "" : ", ", dtype_name(type));
  fail_call(text(self.name, ": input ", input_name(self, input, position), " is ", dtype_name(given),
                 "; its definition is ", element.name, ": ", admitted, ". Convert it with `.to(...)`."));
}

// The inputs of one call: checked, and described as the C side wants them.
struct Inputs {
  Small<oneop_argument, 6> arguments;
  Small<oneop_tensor, 6> tensors;
  Small<Tensor, 6> copies;    // keeps what had to be made contiguous; undefined where the input serves as it is
  Small<int64_t, 16> strides; // for layout="strided"
  Small<ScalarType, 4> types; // one an element type; Undefined where no input says it
  std::optional<c10::Device> device;

  bool on_cpu() const { return !device || device->is_cpu(); }
  oneop_device oneop_device_of() const {
    if (on_cpu())
      return {1, 0};
    return {2, device->index()};
  }
};

void check_dtype(const Binding &self, Inputs &in, Arguments arguments, size_t input, size_t position,
                 ScalarType given) {
  const auto element = static_cast<size_t>(self.inputs[input].element);
  auto &bound = in.types[element];
  if (bound == given)
    return;
  const auto &admitted = self.elements[element].admitted;
  if (std::find(admitted.begin(), admitted.end(), given) == admitted.end())
    refuse_dtype(self, input, position, given);
  if (bound == ScalarType::Undefined) {
    bound = given;
    return;
  }
  for_each_tensor(self, arguments, [&](size_t i, size_t j, const Tensor &tensor) {
    if (tensor.defined() && static_cast<size_t>(self.inputs[i].element) == element && tensor.scalar_type() == bound)
      fail_call(text(self.name, ": input ", input_name(self, input, position), " is ", dtype_name(given), ", and ",
                     self.elements[element].name, " is ", dtype_name(bound), " here, from ", input_name(self, i, j),
                     ". Convert one of them with `.to(...)`."));
  });
}

void check_device(const Binding &self, Inputs &in, Arguments arguments, size_t input, size_t position,
                  const Tensor &tensor) {
  if (!in.device) {
    in.device = tensor.device();
    return;
  }
  if (*in.device == tensor.device())
    return;
  for_each_tensor(self, arguments, [&](size_t i, size_t j, const Tensor &other) {
    if (other.defined())
      fail_call(text(self.name, ": input ", input_name(self, input, position), " is on ", tensor.device().str(),
                     ", and ", input_name(self, i, j), " is on ", in.device->str(),
                     ". Move one of them with `.to(...)`."));
  });
}

// Checks the inputs and describes their shapes. Data pointers come later: a call may go to the reference.
void describe_inputs(const Binding &self, Arguments arguments, Inputs &in) {
  in.types.assign(self.elements.size(), ScalarType::Undefined);
  size_t count = 0;
  for (size_t i = 0; i < self.inputs.size(); ++i)
    count += arguments[i].isList() ? arguments[i].toListRef().size() : 1;
  in.tensors.reserve(count); // `arguments` points into it
  for (size_t i = 0; i < self.inputs.size(); ++i)
    in.arguments.push_back({in.tensors.data(), 0});
  for_each_tensor(self, arguments, [&](size_t i, size_t j, const Tensor &tensor) {
    if (C10_UNLIKELY(!tensor.defined())) {
      if (self.inputs[i].arity != Arity::optional)
        refuse_undefined(self, i, j);
      return;
    }
    if (C10_UNLIKELY(tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested()))
      refuse_layout(self, i, j, tensor);
    check_dtype(self, in, arguments, i, j, tensor.scalar_type());
    check_device(self, in, arguments, i, j, tensor);
    if (C10_UNLIKELY(tensor.dim() > ONEOP_MAX_NDIM))
      fail_call(text(self.name, ": input ", input_name(self, i, j), " has ", tensor.dim(),
                     " dimensions; kernels take up to ", ONEOP_MAX_NDIM, ". Reshape it to fewer."));
    if (in.arguments[i].count++ == 0)
      in.arguments[i].tensors = in.tensors.end();
    in.tensors.push_back({nullptr,
                          {1, 0},
                          static_cast<int32_t>(tensor.dim()),
                          {},
                          const_cast<int64_t *>(tensor.sizes().data()),
                          nullptr,
                          0});
  });
  for (size_t i = 0; i < self.inputs.size(); ++i)
    if (C10_UNLIKELY(self.inputs[i].arity == Arity::variadic && in.arguments[i].count == 0))
      fail_call(text(self.name, ": input `", self.inputs[i].name, "` is an empty list. Pass at least one tensor."));
}

// Strides of the leading `group` dimensions, rewritten so that each is the next one's times its size (they mean the same
// elements: only the strides of dimensions of size 1 change). False where no single stride describes the group.
bool collapse(at::IntArrayRef sizes, int64_t *strides, size_t group) {
  std::optional<int64_t> expected; // the stride that the next dimension to the left must have
  for (size_t d = group; d-- > 0;) {
    if (sizes[d] == 1)
      continue;
    if (expected && strides[d] != *expected)
      return false;
    expected = strides[d] * sizes[d];
  }
  int64_t stride = 1;
  for (size_t d = group; d-- > 0;)
    if (sizes[d] != 1) {
      stride = strides[d];
      break;
    }
  for (size_t d = group; d-- > 0; stride *= sizes[d])
    strides[d] = stride;
  return true;
}

const Tensor &keep(Inputs &in, Tensor tensor) {
  in.copies.push_back(std::move(tensor));
  return in.copies.back();
}

// Fills in data, dtype and strides: contiguous copies where an input is not, or its own strides for layout="strided".
void provide_data(const Binding &self, Arguments arguments, Inputs &in) {
  size_t next = 0;
  if (self.strided)
    in.strides.reserve(in.tensors.size() * ONEOP_MAX_NDIM);
  for_each_tensor(self, arguments, [&](size_t i, size_t, const Tensor &given) {
    if (!given.defined())
      return;
    const Tensor *tensor = &given;
    if (C10_UNLIKELY(tensor->is_neg() || tensor->_is_zerotensor()))
      tensor = &keep(in, tensor->resolve_neg().contiguous().clone(at::MemoryFormat::Contiguous));
    auto &view = in.tensors[next++];
    if (!tensor->is_contiguous()) {
      if (self.strided) {
        const auto dims = static_cast<size_t>(tensor->dim());
        int64_t *strides = in.strides.end();
        in.strides.append(tensor->strides().begin(), tensor->strides().end());
        const auto group = self.inputs[i].batch ? dims - static_cast<size_t>(self.inputs[i].own_dims) : 0;
        if (collapse(tensor->sizes(), strides, group))
          view.strides = strides;
      }
      if (!view.strides)
        tensor = &keep(in, tensor->contiguous());
    }
    view.data = const_cast<void *>(tensor->const_data_ptr());
    view.dtype = fact_of(tensor->scalar_type())->dlpack;
    view.shape = const_cast<int64_t *>(tensor->sizes().data());
  });
}

// ---- Attributes ------------------------------------------------------------------------------------------------------

// The attributes of one call as the C side wants them, with room for the lists (torch keeps a list as boxed values).
struct Attributes {
  Small<oneop_attribute, 8> values;
  std::vector<std::unique_ptr<double[]>> floats;
  std::vector<std::unique_ptr<int64_t[]>> ints;
  std::vector<std::unique_ptr<oneop_string[]>> strings;
};

oneop_string view_of(const IValue &value) {
  const auto &string = value.toStringRef();
  return {string.data(), static_cast<int64_t>(string.size())};
}

double float_of(const IValue &value) {
  if (value.isDouble())
    return value.toDouble();
  return static_cast<double>(value.toInt());
}

void convert_list(Attributes &to, oneop_attribute &out, const IValue &value) {
  auto list = value.toListRef();
  const auto size = static_cast<int64_t>(list.size());
  if (out.kind == ONEOP_FLOATS) {
    auto &room = to.floats.emplace_back(new double[list.size() + 1]);
    for (size_t i = 0; i < list.size(); ++i)
      room[i] = float_of(list[i]);
    out.value.fs = {room.get(), size};
  } else if (out.kind == ONEOP_INTS) {
    auto &room = to.ints.emplace_back(new int64_t[list.size() + 1]);
    for (size_t i = 0; i < list.size(); ++i)
      room[i] = list[i].toInt();
    out.value.is = {room.get(), size};
  } else {
    auto &room = to.strings.emplace_back(new oneop_string[list.size() + 1]);
    for (size_t i = 0; i < list.size(); ++i)
      room[i] = view_of(list[i]);
    out.value.ss = {room.get(), size};
  }
}

bool fits(const IValue &value, int64_t kind) {
  switch (kind) {
  case ONEOP_FLOAT:
    return value.isDouble() || value.isInt();
  case ONEOP_INT:
    return value.isInt();
  case ONEOP_BOOL:
    return value.isBool();
  case ONEOP_STRING:
    return value.isString();
  case ONEOP_FLOATS:
    return value.isDoubleList() || value.isIntList();
  case ONEOP_INTS:
    return value.isIntList();
  case ONEOP_STRINGS:
    return value.isList();
  default:
    return false;
  }
}

void convert_attributes(const Binding &self, Arguments arguments, Attributes &to) {
  for (size_t i = 0; i < self.attributes.size(); ++i) {
    const auto &facts = self.attributes[i];
    const IValue &value = arguments[self.inputs.size() + i];
    auto &out = to.values.emplace_back();
    if (value.isNone() && facts.optional) {
      out = {ONEOP_NONE, {0}};
      continue;
    }
    if (C10_UNLIKELY(!fits(value, facts.kind)))
      fail_call(text(self.name, ": attribute `", facts.name, "` is ", value.tagKind(),
                     " here; kernels take plain Python values. Pass one of the type in the definition."));
    out.kind = facts.kind;
    switch (facts.kind) {
    case ONEOP_FLOAT:
      out.value.f = float_of(value);
      break;
    case ONEOP_INT:
      out.value.i = value.toInt();
      break;
    case ONEOP_BOOL:
      out.value.i = value.toBool();
      break;
    case ONEOP_STRING:
      out.value.s = view_of(value);
      break;
    default:
      convert_list(to, out, value);
    }
  }
}

// ---- One call of a kernel --------------------------------------------------------------------------------------------

// The host's side of oneop_context. `context` is its first member, so that the C side's pointer leads back to it.
struct Call {
  oneop_context context{};
  const Binding &self;
  Inputs in;
  Attributes attributes;
  Small<oneop_argument, 4> out_arguments;
  Small<oneop_tensor, 4> out_views;
  Small<int64_t, 4 * ONEOP_MAX_NDIM> out_shapes; // what `shapes` says; ONEOP_UNKNOWN for `?k`
  Small<int64_t, 2 * ONEOP_MAX_NDIM> resized;    // room for the sizes of the outputs that were resized
  Small<Tensor, 4> outputs;
  Small<ScalarType, 4> types; // of the outputs, one an element type
  Small<int64_t, 16> dims;
  Small<void *, 4> scratch;
  Small<Tensor, 2> device_scratch; // from torch's allocator, which knows what the stream still works on
  std::mutex mutex;                // guards message
  std::string message;

  explicit Call(const Binding &binding);
  ~Call() {
    for (void *memory : scratch)
      std::free(memory);
  }
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  static Call &of(oneop_context *context) { return *reinterpret_cast<Call *>(context); }
  void note(std::string reason) noexcept;
  void check(int status);
  oneop_call described() {
    return {in.arguments.data(), out_arguments.data(), attributes.values.data(), dims.data(), &context};
  }
};

void Call::note(std::string reason) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  if (message.empty())
    message = std::move(reason);
}

// A message from a kernel gets the operator's name in front, unless it begins with it.
void Call::check(int status) {
  if (C10_LIKELY(status == 0 && message.empty()))
    return;
  if (message.empty())
    fail_call(text(self.name, ": the kernel failed and gave no reason. Let it call fail(\"...\")."));
  fail_call(message.compare(0, self.name.size(), self.name) == 0 ? message : text(self.name, ": ", message));
}

Tensor empty_on(c10::Device device, at::IntArrayRef sizes, ScalarType type) {
  if (device.is_cpu())
    return Tensor(at::detail::empty_cpu(sizes, type, false, std::nullopt));
  return at::empty(sizes, at::TensorOptions().dtype(type).device(device));
}

// NULL where there is none; the kernel then says so.
void *device_scratch(Call &call, size_t bytes) noexcept {
  try {
    const auto size = static_cast<int64_t>(std::min<size_t>(bytes ? bytes : 1, INT64_MAX));
    call.device_scratch.push_back(empty_on(*call.in.device, {size}, ScalarType::Byte));
    return call.device_scratch.back().mutable_data_ptr();
  } catch (...) {
    return nullptr;
  }
}

extern "C" {
void host_parallel_for(oneop_context *, int64_t begin, int64_t end, int64_t grain,
                       void (*body)(void *, int64_t, int64_t), void *data) {
  at::parallel_for(begin, end, std::max<int64_t>(grain, 1), [=](int64_t b, int64_t e) { body(data, b, e); });
}

void *host_scratch(oneop_context *context, size_t bytes) {
  constexpr size_t alignment = 64;
  if (!Call::of(context).in.on_cpu())
    return device_scratch(Call::of(context), bytes);
  if (bytes > SIZE_MAX - alignment)
    return nullptr;
  void *memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0)
    return nullptr;
  try {
    Call::of(context).scratch.push_back(memory);
  } catch (...) {
    std::free(memory);
    return nullptr;
  }
  return memory;
}

oneop_tensor *host_resize(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim);

void host_fail(oneop_context *context, const char *message) {
  try {
    Call::of(context).note(message && *message ? message : "the kernel failed with an empty message");
  } catch (...) { // no memory for a message: `run` still says that it failed
  }
}
}

Call::Call(const Binding &binding) : self(binding) {
  context = {host_parallel_for, host_scratch, host_resize, host_fail, nullptr};
}

size_t first_view(const Call &call, size_t output) {
  return static_cast<size_t>(call.out_arguments[output].tensors - call.out_views.data());
}

void allocate(Call &call, size_t output, size_t view, at::IntArrayRef sizes) {
  const auto type = call.types[static_cast<size_t>(call.self.outputs[output].element)];
  auto &tensor = call.outputs[view];
  tensor = empty_on(call.in.device.value_or(c10::kCPU), sizes, type);
  call.out_views[view].data = tensor.mutable_data_ptr();
}

std::string describe(const OutputFacts &facts) {
  std::string result;
  for (const auto &dim : facts.dims)
    result += (result.empty() ? "" : " ") + dim;
  return result;
}

oneop_tensor *resize(Call &call, int32_t output, const int64_t *sizes, int32_t ndim) {
  const auto &self = call.self;
  if (output < 0 || static_cast<size_t>(output) >= self.outputs.size()) {
    call.note(text("the kernel resized output number ", output, "; there are ", self.outputs.size(),
                   ". Count outputs from 0, in the definition's order."));
    return nullptr;
  }
  const auto index = static_cast<size_t>(output);
  const auto &facts = self.outputs[index];
  const auto first = first_view(call, index);
  auto &view = call.out_views[first];
  const int64_t *known = call.out_shapes.data() + first * ONEOP_MAX_NDIM;
  const auto given = at::IntArrayRef(sizes, ndim > 0 ? static_cast<size_t>(ndim) : 0);
  bool fits = ndim == view.ndim && facts.mirrors < 0;
  for (int32_t d = 0; fits && d < ndim; ++d)
    fits = sizes[d] >= 0 && (known[d] == ONEOP_UNKNOWN || known[d] == sizes[d]);
  if (!fits) {
    call.note(text("the kernel resized output `", facts.name, "` to ", shape_text(given), "; its definition is \"",
                   describe(facts), "\". Resize it to sizes that fit."));
    return nullptr;
  }
  if (call.outputs[first].defined()) {
    if (call.outputs[first].sizes() == given)
      return &view;
    call.note(text("the kernel resized output `", facts.name, "` to ", shape_text(call.outputs[first].sizes()),
                   " and then to ", shape_text(given), ". Resize an output once."));
    return nullptr;
  }
  allocate(call, index, first, given);
  int64_t *room = call.resized.data() + first * ONEOP_MAX_NDIM;
  std::copy(given.begin(), given.end(), room);
  view.shape = room;
  return &view;
}

std::string bytes_text(const oneop_tensor &tensor, at::IntArrayRef sizes) {
  int64_t bytes = tensor.dtype.bits / 8;
  bool fits = true;
  for (const auto size : sizes)
    fits = !__builtin_mul_overflow(bytes, size, &bytes) && fits;
  return fits ? text(bytes, " bytes") : "more bytes than 64 bits count";
}

std::string first_line(const std::string &message) { return message.substr(0, message.find('\n')); }

// What is said where an output has no memory: torch's own words come with pages of its C++ stack.
void note_unallocated(Call &call, int32_t output, at::IntArrayRef sizes, const std::string &reason) {
  const auto index = static_cast<size_t>(output);
  call.note(text("output `", call.self.outputs[index].name, "` of shape ", shape_text(sizes), " (",
                 bytes_text(call.out_views[first_view(call, index)], sizes),
                 ") cannot be allocated: ", first_line(reason), ". Pass smaller inputs."));
}

extern "C" oneop_tensor *host_resize(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim) {
  auto &call = Call::of(context);
  try {
    return resize(call, output, sizes, ndim);
  } catch (const c10::Error &error) {
    note_unallocated(call, output, {sizes, static_cast<size_t>(ndim)}, error.what_without_backtrace());
  } catch (const std::exception &error) {
    note_unallocated(call, output, {sizes, static_cast<size_t>(ndim)}, error.what());
  } catch (...) {
    call.note("an output cannot be allocated");
  }
  return nullptr;
}

// Checks the inputs against each other and against the definition's dimensions; the outputs' shapes come out.
void infer(Call &call, Arguments arguments) {
  const auto &self = call.self;
  describe_inputs(self, arguments, call.in);
  convert_attributes(self, arguments, call.attributes);
  size_t count = 0;
  for (const auto &output : self.outputs)
    count += output.mirrors >= 0 && self.inputs[static_cast<size_t>(output.mirrors)].arity == Arity::variadic
                 ? static_cast<size_t>(call.in.arguments[static_cast<size_t>(output.mirrors)].count)
                 : 1;
  call.out_views.resize(count, oneop_tensor{nullptr, {1, 0}, 0, {}, nullptr, nullptr, 0});
  call.out_shapes.resize_for_overwrite(count * ONEOP_MAX_NDIM);
  for (size_t i = 0; i < count; ++i)
    call.out_views[i].shape = call.out_shapes.data() + i * ONEOP_MAX_NDIM;
  size_t next = 0;
  for (const auto &output : self.outputs) {
    const bool list = output.mirrors >= 0 && self.inputs[static_cast<size_t>(output.mirrors)].arity == Arity::variadic;
    const int64_t length = list ? call.in.arguments[static_cast<size_t>(output.mirrors)].count : 1;
    call.out_arguments.push_back({call.out_views.data() + next, length});
    next += static_cast<size_t>(length);
  }
  call.dims.resize(static_cast<size_t>(self.table->n_dims), 0);
  const auto described = call.described();
  call.check(self.table->shapes(&described));
}

// The kernels for a device of CUDA's: where nobody has asked yet, Python builds them, or says that there are none.
const Kernels &cuda_kernels(const Binding &self) {
  const auto *found = self.cuda.load(std::memory_order_acquire);
  if (C10_LIKELY(found != nullptr))
    return *found;
  python.load(std::memory_order_acquire)->prepare_cuda(self.name.c_str());
  found = self.cuda.load(std::memory_order_acquire);
  return found ? *found : no_kernels; // the operator was defined again meanwhile
}

const Kernels &kernels_for(const Binding &self, const Inputs &in) {
  if (C10_LIKELY(in.on_cpu()))
    return self.cpu;
  return in.device->is_cuda() ? cuda_kernels(self) : no_kernels;
}

// The kernel for the call's device and dtypes. An element type that only absent inputs have takes the kernel's.
const Kernel *pick_kernel(Call &call, const Kernels &kernels) {
  for (const auto &kernel : kernels) {
    const auto &types = kernel.types;
    bool fits = true;
    for (size_t e = 0; fits && e < types.size(); ++e)
      fits = call.in.types[e] == types[e] || call.in.types[e] == ScalarType::Undefined;
    if (fits) {
      call.types.assign(types.begin(), types.end());
      return &kernel;
    }
  }
  return nullptr;
}

void allocate_outputs(Call &call) {
  const auto &self = call.self;
  call.outputs.resize(call.out_views.size());
  for (size_t o = 0; o < self.outputs.size(); ++o) {
    const auto dtype = fact_of(call.types[static_cast<size_t>(self.outputs[o].element)])->dlpack;
    for (int64_t j = 0; j < call.out_arguments[o].count; ++j) {
      const auto view = first_view(call, o) + static_cast<size_t>(j);
      auto &tensor = call.out_views[view];
      tensor.dtype = dtype;
      const auto sizes = at::IntArrayRef(tensor.shape, static_cast<size_t>(tensor.ndim));
      if (std::find(sizes.begin(), sizes.end(), ONEOP_UNKNOWN) == sizes.end())
        allocate(call, o, view, sizes);
      else if (call.resized.empty())
        call.resized.resize_for_overwrite(call.out_views.size() * ONEOP_MAX_NDIM);
    }
  }
}

// Every `?k` has a size now, and the same one wherever it stands.
void check_unknown_sizes(const Call &call) {
  if (C10_LIKELY(call.resized.empty()))
    return;
  const auto &self = call.self;
  std::map<std::string, std::pair<std::string, int64_t>> found;
  for (size_t o = 0; o < self.outputs.size(); ++o) {
    const auto &facts = self.outputs[o];
    const auto &tensor = call.outputs[first_view(call, o)];
    if (!tensor.defined())
      fail_call(text(self.name, ": the kernel gave output `", facts.name, "` no size; its definition is \"",
                     describe(facts), "\". Let it call resize for that output."));
    const auto leading = static_cast<size_t>(tensor.dim()) - facts.dims.size();
    for (size_t d = 0; d < facts.dims.size(); ++d) {
      if (facts.dims[d][0] != '?')
        continue;
      const auto size = tensor.size(static_cast<int64_t>(leading + d));
      const auto [entry, fresh] = found.try_emplace(facts.dims[d], facts.name, size);
      if (!fresh && entry->second.second != size)
        fail_call(text(self.name, ": the kernel gave ", facts.dims[d], " the size ", entry->second.second,
                       " in output `", entry->second.first, "` and ", size, " in output `", facts.name,
                       "`. Resize both alike."));
    }
  }
}

void push_outputs(Call &call, Stack &stack) {
  const auto &self = call.self;
  torch::jit::drop(stack, self.arguments());
  for (size_t o = 0; o < self.outputs.size(); ++o) {
    const auto first = first_view(call, o);
    if (self.outputs[o].mirrors >= 0 &&
        self.inputs[static_cast<size_t>(self.outputs[o].mirrors)].arity == Arity::variadic) {
      c10::List<Tensor> list;
      for (int64_t j = 0; j < call.out_arguments[o].count; ++j)
        list.push_back(std::move(call.outputs[first + static_cast<size_t>(j)]));
      stack.emplace_back(std::move(list));
    } else {
      stack.emplace_back(std::move(call.outputs[first]));
    }
  }
}

// ---- The reference ---------------------------------------------------------------------------------------------------

// An output that is an input, a view of one or the same tensor as another output becomes a tensor of its own. Wrappers
// (functorch's) have no storage to compare, so they are copied.
IValue own(IValue output, const std::vector<Tensor> &others) {
  if (output.isTensorList()) {
    c10::List<Tensor> list;
    for (const IValue &item : output.toListRef())
      list.push_back(own(item, others).toTensor());
    return list;
  }
  const Tensor &tensor = output.toTensor();
  if (!tensor.defined())
    return output;
  bool shared = !tensor.has_storage();
  for (const auto &other : others)
    shared = shared || other.is_same(tensor) || (other.has_storage() && tensor.is_alias_of(other));
  return shared ? IValue(tensor.clone()) : output;
}

[[noreturn]] void refuse_served(const Binding &self, const Stack &stack, const char *why) {
  std::string given;
  for_each_tensor(self, torch::jit::last(stack, self.arguments()), [&](size_t i, size_t j, const Tensor &tensor) {
    if (tensor.defined())
      given += text(given.empty() ? "" : ", ", input_name(self, i, j), " is ", dtype_name(tensor.scalar_type()), " on ",
                    tensor.device().str());
  });
  fail_call(text(self.name, ": ", why, " (", given, "), and a program without Python has no reference to run instead. ",
                 "Convert the inputs to what a kernel takes, or build the library with kernels for these."));
}

// Runs the reference in place of a kernel. Autocast is off inside, as it is for a kernel.
void call_reference(const Binding &self, Stack &stack, const char *why) {
  if (!self.reference && self.served)
    refuse_served(self, stack, why);
  if (!self.reference)
    fail_call(text(self.name, ": ", why, ", and the operator has no reference to take its place (native_only). ",
                   "Call it with what its kernel supports, or give the definition a body."));
  std::vector<Tensor> others;
  for_each_tensor(self, torch::jit::last(stack, self.arguments()), [&](size_t, size_t, const Tensor &tensor) {
    if (tensor.defined())
      others.push_back(tensor);
  });
  {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    self.reference->callBoxed(stack);
  }
  const auto first = stack.size() - self.outputs.size();
  for (size_t o = 0; o < self.outputs.size(); ++o) {
    auto &output = stack[first + o];
    output = own(std::move(output), others);
    if (output.isTensor())
      others.push_back(output.toTensor());
  }
}

// ---- Kernels of the dispatcher ---------------------------------------------------------------------------------------

// Torch's current stream of a GPU. Builds for CUDA say it through their stable C interface; any other has a guard for its
// kind of device.
void *current_stream(c10::Device device) {
  using Get = int32_t (*)(int32_t, void **);
  static const auto get = [] {
    void *library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? reinterpret_cast<Get>(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  void *stream = nullptr;
  if (get && get(device.index(), &stream) == 0)
    return stream;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

void run_kernel(Call &call, const Kernel &kernel, Arguments arguments) {
  provide_data(call.self, arguments, call.in);
  allocate_outputs(call);
  const auto described = call.described();
  call.check(kernel.run(&described));
}

// The same on a GPU: on its current stream, with the device current for whatever allocates or copies.
void run_on_device(Call &call, const Kernel &kernel, Arguments arguments) {
  const c10::DeviceGuard guard(*call.in.device);
  const auto device = call.in.oneop_device_of();
  for (auto &tensor : call.in.tensors)
    tensor.device = device;
  for (auto &tensor : call.out_views)
    tensor.device = device;
  call.context.stream = current_stream(*call.in.device);
  run_kernel(call, kernel, arguments);
}

void compute(const Binding &self, Stack &stack) {
  Call call(self);
  const auto arguments = torch::jit::last(stack, self.arguments());
  infer(call, arguments);
  const auto *kernel = pick_kernel(call, kernels_for(self, call.in));
  if (C10_UNLIKELY(!kernel))
    return call_reference(
        self, stack, call.in.on_cpu() ? "there is no kernel for these dtypes" : "there is no kernel for this device");
  if (C10_LIKELY(call.in.on_cpu()))
    run_kernel(call, *kernel, arguments);
  else
    run_on_device(call, *kernel, arguments);
  check_unknown_sizes(call);
  push_outputs(call, stack);
}

struct Compute final : c10::OperatorKernel {
  Operator *entry;
  explicit Compute(Operator *e) : entry(e) {}
  void operator()(const OperatorHandle &, DispatchKeySet, Stack *stack) { compute(entry->current(), *stack); }
};

// What a call needs from autograd.
struct Demand {
  bool tangent = false, gradient = false;
};

Demand demand_of(const Binding &self, Arguments arguments) {
  Demand demand;
  const bool enabled = at::GradMode::is_enabled();
  for_each_tensor(self, arguments, [&](size_t, size_t, const Tensor &tensor) {
    if (!tensor.defined())
      return;
    demand.tangent = demand.tangent || tensor._fw_grad(/*level=*/0).defined();
    demand.gradient = demand.gradient || (enabled && tensor.requires_grad());
  });
  return demand;
}

// The backward pass of any operator.
struct BackwardNode final : torch::autograd::Node {
  const Binding &self;
  Small<SavedVariable, 4> inputs;  // flat: an entry for each tensor of a list, one for an absent input
  Small<SavedVariable, 1> outputs; // those the gradient operator names
  Small<IValue, 4> attributes;
  Small<uint32_t, 4> counts; // tensors of each input
  std::vector<bool> is_list;

  BackwardNode(const Binding &binding, Arguments arguments);
  void remember_outputs(const Stack &stack, const NodePointer<BackwardNode> &pointer);
  variable_list apply(variable_list &&gradients) override;
  std::string name() const override { return self.node_name; }
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto &saved : inputs)
      saved.reset_data();
    for (auto &saved : outputs)
      saved.reset_data();
  }

private:
  int64_t needed_inputs() const;
  void push_inputs(Stack &stack, const std::vector<Tensor> &tensors) const;
  std::vector<Tensor> unpack_inputs();
  variable_list written(const variable_list &gradients, const GradientPlan &plan, int64_t needs);
  variable_list derived(const variable_list &gradients);
  variable_list alias_wanted(std::vector<Tensor> &tensors, std::vector<size_t> &places);
  variable_list derived_in_level(std::vector<Tensor> &tensors, const std::vector<size_t> &places,
                                 const variable_list &gradients);
  variable_list differentiate_reference(const std::vector<Tensor> &tensors, const variable_list &wanted,
                                        const variable_list &gradients, bool create_graph) const;
};

BackwardNode::BackwardNode(const Binding &binding, Arguments arguments) : self(binding) {
  torch::autograd::edge_list edges;
  edges.reserve(self.inputs.size() + 1);
  counts.assign(self.inputs.size(), 0);
  for_each_tensor(self, arguments, [&](size_t i, size_t, const Tensor &tensor) {
    ++counts[i];
    edges.push_back(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge());
    inputs.emplace_back(tensor, /*is_output=*/false);
  });
  set_next_edges(std::move(edges));
  attributes.append(arguments.begin() + static_cast<std::ptrdiff_t>(self.inputs.size()), arguments.end());
}

// Gives every output its place in this node, whether it can have a gradient or not: positions are the definition's.
void BackwardNode::remember_outputs(const Stack &stack, const NodePointer<BackwardNode> &pointer) {
  const auto first = stack.size() - self.outputs.size();
  const auto attach = [&](const Tensor &tensor) {
    if (!tensor.defined()) {
      add_input_metadata(Node::undefined_input());
      return;
    }
    const auto position = add_input_metadata(tensor);
    if (torch::autograd::isDifferentiableType(tensor.scalar_type()))
      torch::autograd::impl::set_gradient_edge(tensor, {pointer, position});
  };
  for (size_t o = 0; o < self.outputs.size(); ++o) {
    const IValue &output = stack[first + o];
    if (output.isTensor()) {
      attach(output.toTensor());
    } else {
      for (const IValue &item : output.toListRef())
        attach(item.toTensor());
    }
  }
  if (self.gradient)
    for (auto o : self.gradient->saved_outputs)
      outputs.emplace_back(stack[first + static_cast<size_t>(o)].toTensor(), /*is_output=*/true);
}

// One bit an input parameter.
int64_t BackwardNode::needed_inputs() const {
  int64_t needs = 0;
  size_t edge = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    for (uint32_t j = 0; j < counts[i]; ++j, ++edge)
      if (task_should_compute_output(edge))
        needs |= int64_t{1} << i;
  return needs;
}

std::vector<Tensor> BackwardNode::unpack_inputs() {
  std::vector<Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const auto &saved : inputs)
    tensors.push_back(saved.unpack(getptr()));
  return tensors;
}

void BackwardNode::push_inputs(Stack &stack, const std::vector<Tensor> &tensors) const {
  size_t next = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (self.inputs[i].arity == Arity::variadic) {
      c10::List<Tensor> list;
      for (uint32_t j = 0; j < counts[i]; ++j)
        list.push_back(tensors[next++]);
      stack.emplace_back(std::move(list));
    } else {
      const auto &tensor = tensors[next++];
      tensor.defined() ? stack.emplace_back(tensor) : stack.emplace_back();
    }
  }
}

variable_list BackwardNode::apply(variable_list &&gradients) {
  const auto needs = needed_inputs();
  bool any = false;
  for (const auto &gradient : gradients)
    any = any || gradient.defined();
  if (needs == 0 || !any)
    return variable_list(inputs.size());
  return self.gradient ? written(gradients, *self.gradient, needs) : derived(gradients);
}

// The gradient that somebody wrote is an operator itself: its own gradient makes double backward work.
variable_list BackwardNode::written(const variable_list &gradients, const GradientPlan &plan, int64_t needs) {
  Stack stack;
  stack.reserve(plan.gradients.size() + counts.size() + outputs.size() + attributes.size() + 1);
  for (auto o : plan.gradients) {
    const auto &gradient = gradients[static_cast<size_t>(o)];
    stack.emplace_back(gradient.defined() ? gradient : input_metadata(static_cast<size_t>(o)).zeros_like());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    push_inputs(stack, unpack_inputs());
    for (const auto &saved : outputs)
      stack.emplace_back(saved.unpack(getptr()));
  }
  for (const auto &attribute : attributes)
    stack.push_back(attribute);
  stack.emplace_back(needs);
  plan.op.callBoxed(stack);

  variable_list result(inputs.size());
  std::vector<size_t> first(counts.size() + 1, 0);
  for (size_t i = 0; i < counts.size(); ++i)
    first[i + 1] = first[i] + counts[i];
  for (size_t r = 0; r < plan.results.size(); ++r) {
    const auto input = static_cast<size_t>(plan.results[r]);
    const auto take = [&](size_t edge, const Tensor &value) {
      if (task_should_compute_output(edge))
        result[edge] = value;
    };
    if (stack[r].isTensor()) {
      take(first[input], stack[r].toTensor());
    } else if (!stack[r].isNone()) {
      auto list = stack[r].toListRef();
      for (size_t j = 0; j < std::min<size_t>(list.size(), counts[input]); ++j)
        take(first[input] + j, list[j].toTensor());
    }
  }
  return result;
}

// A level of torch.func, for as long as this lives: a derivative inside whatever transforms are active.
struct Level {
  const oneop_torch_hooks &hooks;
  int64_t number;
  explicit Level(const oneop_torch_hooks &h) : hooks(h), number(h.push_level()) {}
  ~Level() { hooks.pop_level(); }
  Level(const Level &) = delete;
  Level &operator=(const Level &) = delete;
};

// Aliases of the inputs whose gradients are wanted. `places` says which.
variable_list BackwardNode::alias_wanted(std::vector<Tensor> &tensors, std::vector<size_t> &places) {
  variable_list wanted;
  for (size_t edge = 0; edge < tensors.size(); ++edge) {
    if (!task_should_compute_output(edge) || !tensors[edge].defined())
      continue;
    tensors[edge] = tensors[edge].view_as(tensors[edge]);
    wanted.push_back(tensors[edge]);
    places.push_back(edge);
  }
  return wanted;
}

// Differentiates the reference, run again on aliases of the inputs: they end the inner graph, so that an input that was
// computed from another is not counted twice, and they lead on to the outer graph for higher orders.
variable_list BackwardNode::derived(const variable_list &gradients) {
  if (!self.reference && self.served)
    fail_call(text(self.name,
                   " has no gradient here: a library that serves without Python holds what inference needs. ",
                   "Call it under a torch::NoGradGuard, or train in Python."));
  if (!self.reference)
    fail_call(text(self.name,
                   " has no gradient: it has no reference (native_only). Give it one with `.gradient`, or call ",
                   "it under torch.no_grad()."));
  std::vector<Tensor> tensors;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tensors = unpack_inputs();
  }
  const bool create_graph = at::GradMode::is_enabled();
  std::vector<size_t> places;
  variable_list wanted, found;
  {
    const at::AutoGradMode record(true);
    wanted = alias_wanted(tensors, places);
  }
  bool plain = !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  for (const auto &tensor : wanted)
    plain = plain && tensor.requires_grad();
  if (plain) {
    const at::AutoGradMode record(true);
    found = differentiate_reference(tensors, wanted, gradients, create_graph);
  } else {
    found = derived_in_level(tensors, places, gradients);
  }
  variable_list result(inputs.size());
  for (size_t i = 0; i < places.size(); ++i)
    result[places[i]] = found[i];
  return result;
}

// Under torch.func, and after it: an input may be a wrapper of a level that has ended, which no longer records. A level of
// our own records whatever the inputs are, and the levels around it see what happens in it.
variable_list BackwardNode::derived_in_level(std::vector<Tensor> &tensors, const std::vector<size_t> &places,
                                             const variable_list &gradients) {
  const auto *hooks = python.load(std::memory_order_acquire);
  if (!hooks)
    fail_call(text(self.name, ": this gradient needs torch.func, which only Python has. Call it from Python."));
  const Level level(*hooks); // remembers the grad mode, so it comes before the next line
  const at::AutoGradMode record(true);
  variable_list wanted;
  for (auto place : places) {
    tensors[place] = hooks->wrap(tensors[place], level.number);
    tensors[place].set_requires_grad(true);
    wanted.push_back(tensors[place]);
  }
  auto found = differentiate_reference(tensors, wanted, gradients, /*create_graph=*/true);
  for (auto &tensor : found)
    if (tensor.defined())
      tensor = hooks->unwrap(tensor, level.number);
  return found;
}

variable_list BackwardNode::differentiate_reference(const std::vector<Tensor> &tensors, const variable_list &wanted,
                                                    const variable_list &gradients, bool create_graph) const {
  Stack stack;
  push_inputs(stack, tensors);
  for (const auto &attribute : attributes)
    stack.push_back(attribute);
  {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    self.reference->callBoxed(stack);
  }
  variable_list outputs_of_reference, incoming;
  size_t position = 0;
  const auto consider = [&](const Tensor &output) {
    const auto &gradient = gradients[position++];
    if (!gradient.defined() || !output.defined() || !output.requires_grad())
      return;
    outputs_of_reference.push_back(output);
    incoming.push_back(gradient);
  };
  for (const IValue &output : stack) {
    if (output.isTensor()) {
      consider(output.toTensor());
    } else {
      for (const IValue &item : output.toListRef())
        consider(item.toTensor());
    }
  }
  if (outputs_of_reference.empty())
    fail_call(text(self.name,
                   ": its reference is not differentiable: no output that got a gradient depends on an input ",
                   "in a way autograd can follow. Give the operator a gradient, or call it on detached inputs."));
  return torch::autograd::grad(outputs_of_reference, wanted, incoming, /*retain_graph=*/std::nullopt, create_graph,
                               /*allow_unused=*/true);
}

struct Differentiate final : c10::OperatorKernel {
  Operator *entry;
  explicit Differentiate(Operator *e) : entry(e) {}

  void operator()(const OperatorHandle &op, DispatchKeySet keys, Stack *stack) {
    const auto &self = entry->current();
    const auto arguments = torch::jit::last(*stack, self.arguments());
    const auto demand = demand_of(self, arguments);
    if (C10_UNLIKELY(demand.tangent))
      return forward_mode(self, *stack);
    if (!demand.gradient)
      return below(op, keys, stack);
    auto node = make_node<BackwardNode>(self, arguments);
    below(op, keys, stack);
    node->remember_outputs(*stack, node);
  }

private:
  static void below(const OperatorHandle &op, DispatchKeySet keys, Stack *stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  // The reference, which checks its inputs too, has a derivative for tangents of any order.
  static void forward_mode(const Binding &self, Stack &stack) {
    call_reference(self, stack, "an input has a tangent, and kernels have no forward mode");
  }
};

// ---- Attaching -------------------------------------------------------------------------------------------------------

std::vector<std::string> split(const std::string &line, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);)
    words.push_back(word);
  return words;
}

Element parse_element(const std::vector<std::string> &words) {
  Element element{words.at(1), {}};
  for (size_t i = 2; i < words.size(); ++i)
    for (const auto &fact : element_facts)
      if (words[i] == fact.name)
        element.admitted.push_back(fact.type);
  return element;
}

InputFacts parse_input(const std::vector<std::string> &words) {
  const auto arity = words.at(2) == "required"   ? Arity::required
                     : words.at(2) == "optional" ? Arity::optional
                                                 : Arity::variadic;
  return {words.at(1), arity, std::stoi(words.at(3)), words.at(4) == "1", std::stoll(words.at(5))};
}

OutputFacts parse_output(const std::vector<std::string> &words) {
  return {words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)), {words.begin() + 4, words.end()}};
}

// The description that runtime.py writes: one fact a line, words separated by tabs.
std::unique_ptr<Binding> parse(const char *description) {
  auto binding = std::make_unique<Binding>();
  for (const auto &line : split(description, '\n')) {
    const auto words = split(line, '\t');
    const auto &key = words.at(0);
    if (key == "operator")
      binding->name = words.at(1);
    else if (key == "fingerprint")
      binding->fingerprint = words.at(1);
    else if (key == "library")
      binding->library = words.at(1);
    else if (key == "gradient")
      binding->gradient_name = words.at(1);
    else if (key == "strided")
      binding->strided = true;
    else if (key == "cuda")
      binding->asks_for_cuda = true;
    else if (key == "native_only")
      binding->native_only = true;
    else if (key == "element")
      binding->elements.push_back(parse_element(words));
    else if (key == "input")
      binding->inputs.push_back(parse_input(words));
    else if (key == "attribute")
      binding->attributes.push_back({words.at(1), std::stoll(words.at(2)), words.at(3) == "1"});
    else if (key == "output")
      binding->outputs.push_back(parse_output(words));
    else
      throw AttachError("unknown fact " + key);
  }
  return binding;
}

[[noreturn]] void refuse_library(const Binding &self, const std::string &path, const std::string &problem) {
  throw AttachError(text(self.name, ": ", path, " ", problem, " Build it again."));
}

// The library stays open for the life of the process: graphs and threads may be inside it.
const oneop_library *open_library(const Binding &self, const std::string &path) {
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = dlerror();
    refuse_library(self, path, text("cannot be loaded: ", reason ? reason : "no reason given", "."));
  }
  const auto table = reinterpret_cast<oneop_library_function>(dlsym(handle, ONEOP_LIBRARY_SYMBOL));
  if (!table)
    refuse_library(self, path, "is not a kernel library: it has no function " ONEOP_LIBRARY_SYMBOL ".");
  return table();
}

const oneop_operator *find_table(const Binding &self, const std::string &path, const oneop_library *library) {
  if (library->abi_version != ONEOP_ABI_VERSION)
    refuse_library(
        self, path,
        text("has ABI version ", library->abi_version, "; this oneop reads version ", ONEOP_ABI_VERSION, "."));
  std::string others;
  for (int32_t i = 0; i < library->n_operators; ++i) {
    if (self.name == library->operators[i].name)
      return &library->operators[i];
    others += text(others.empty() ? "" : ", ", library->operators[i].name);
  }
  refuse_library(self, path, text("does not hold it; it holds ", others.empty() ? "nothing" : others, "."));
}

void check_table(const Binding &self, const std::string &path, const oneop_operator &table) {
  if (self.fingerprint != table.fingerprint)
    refuse_library(self, path,
                   text("was built from another definition: its fingerprint is ", table.fingerprint,
                        ", the definition's is ", self.fingerprint, "."));
  const bool fits = static_cast<size_t>(table.n_inputs) == self.inputs.size() &&
                    static_cast<size_t>(table.n_outputs) == self.outputs.size() &&
                    static_cast<size_t>(table.n_attributes) == self.attributes.size() &&
                    static_cast<size_t>(table.n_dtypes) == self.elements.size() && table.n_dims >= 0;
  if (!fits)
    refuse_library(self, path,
                   text("counts ", table.n_inputs, " inputs, ", table.n_outputs, " outputs, ", table.n_attributes,
                        " attributes and ", table.n_dtypes, " dtype variables; the definition has ", self.inputs.size(),
                        ", ", self.outputs.size(), ", ", self.attributes.size(), " and ", self.elements.size(), "."));
}

Kernels read_kernels(const oneop_operator &table, int32_t device_type) {
  Kernels found;
  for (int32_t k = 0; k < table.n_kernels; ++k) {
    const auto &kernel = table.kernels[k];
    if (kernel.device_type != device_type)
      continue;
    auto &row = found.emplace_back(Kernel{kernel.run, {}});
    for (int32_t e = 0; e < table.n_dtypes; ++e)
      row.types.push_back(scalar_type(kernel.dtypes[e]));
  }
  return found;
}

// Kept for good, as everything that a call may be using.
void keep_cuda(const Binding &self, const oneop_operator *table) {
  const auto *found = table ? new Kernels(read_kernels(*table, 2)) : &no_kernels;
  self.cuda.store(found, std::memory_order_release);
}

OperatorHandle find_operator(const Binding &self, const std::string &name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!found)
    throw AttachError(text(self.name, ": ", name, " has no schema. Register it before attaching the kernels."));
  return *found;
}

GradientPlan plan_gradient(const Binding &self) {
  GradientPlan plan{find_operator(self, self.gradient_name), {}, {}, {}};
  for (size_t o = 0; o < self.outputs.size(); ++o)
    if (self.elements[static_cast<size_t>(self.outputs[o].element)].may_be_floating())
      plan.gradients.push_back(static_cast<int32_t>(o));
  for (size_t i = 0; i < self.inputs.size(); ++i)
    if (self.elements[static_cast<size_t>(self.inputs[i].element)].may_be_floating())
      plan.results.push_back(static_cast<int32_t>(i));
  const auto &schema = plan.op.schema();
  const auto &arguments = schema.arguments();
  size_t positional = 0;
  while (positional < arguments.size() && !arguments[positional].kwarg_only())
    ++positional;
  const auto fixed = plan.gradients.size() + self.inputs.size();
  const auto mismatch = [&](const std::string &what) {
    throw AttachError(text(self.name, ": its gradient ", self.gradient_name, " does not fit it: ", what, "."));
  };
  if (positional < fixed || arguments.size() != positional + self.attributes.size() + 1)
    mismatch(text("it has ", positional, " inputs and ", arguments.size() - positional, " attributes"));
  if (schema.returns().size() != plan.results.size())
    mismatch(text("it has ", schema.returns().size(), " outputs"));
  for (size_t a = fixed; a < positional; ++a) {
    size_t o = 0;
    while (o < self.outputs.size() && self.outputs[o].name != arguments[a].name())
      ++o;
    if (o == self.outputs.size())
      mismatch(text("`", arguments[a].name(), "` is not an output"));
    plan.saved_outputs.push_back(static_cast<int32_t>(o));
  }
  return plan;
}

// `own` is the table of the library that serves these kernels itself; without it, the description names the file.
std::unique_ptr<Binding> bind(const char *description, const oneop_library *own) {
  auto self = parse(description);
  self->served = own != nullptr;
  self->table = find_table(*self, self->library, own ? own : open_library(*self, self->library));
  check_table(*self, self->library, *self->table);
  self->cpu = read_kernels(*self->table, 1);
  if (!self->asks_for_cuda)
    keep_cuda(*self, self->table); // all in one library, or none
  const auto &schema = find_operator(*self, self->name).schema();
  if (schema.arguments().size() != self->arguments() || schema.returns().size() != self->outputs.size())
    throw AttachError(text(self->name, ": its schema does not fit its definition: ", toString(schema), "."));
  if (!self->native_only && !self->served)
    self->reference = find_operator(*self, self->name + "_reference");
  if (!self->gradient_name.empty())
    self->gradient = plan_gradient(*self);
  self->node_name = self->name + " backward";
  return self;
}

void register_kernels(const std::string &name, Operator *entry) {
  const auto colons = name.find("::");
  const auto space = name.substr(0, colons), base = name.substr(colons + 2);
  const auto add = [&](c10::DispatchKey key, auto kernel) {
    // Never destroyed: a destroyed Library takes its kernels out of the dispatcher.
    auto *library = new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);
    library->impl(base.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  };
  add(c10::DispatchKey::CompositeExplicitAutograd, std::make_unique<Compute>(entry));
  add(c10::DispatchKey::Autograd, std::make_unique<Differentiate>(entry));
}

struct Entries {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Operator>> found;
};

Entries &entries() {
  static auto *all = new Entries; // outlives the interpreter's shutdown
  return *all;
}

void attach(const char *description, const oneop_library *own = nullptr) {
  auto binding = bind(description, own);
  const auto name = binding->name;
  const std::lock_guard<std::mutex> lock(entries().mutex);
  auto &entry = entries().found[name];
  const bool fresh = !entry;
  if (fresh) {
    entry = std::make_unique<Operator>();
    entry->name = name;
  }
  entry->binding.store(binding.release(), std::memory_order_release);
  if (fresh)
    register_kernels(name, entry.get());
}

// The library of an operator's CUDA kernels; without a path there is none, and the reference runs on GPUs.
void attach_cuda(const std::string &name, const std::string &path) {
  const std::lock_guard<std::mutex> lock(entries().mutex);
  const auto found = entries().found.find(name);
  const auto *binding = found == entries().found.end() ? nullptr : found->second->binding.load();
  if (!binding)
    return; // it was taken out; the next one asks again
  const oneop_operator *table = nullptr;
  if (!path.empty()) {
    table = find_table(*binding, path, open_library(*binding, path));
    check_table(*binding, path, *table);
  }
  keep_cuda(*binding, table);
}

void detach(const std::string &name) {
  const std::lock_guard<std::mutex> lock(entries().mutex);
  const auto found = entries().found.find(name);
  if (found != entries().found.end())
    found->second->binding.store(nullptr, std::memory_order_release);
}

// Where there is no Python, the schema has to come from here too.
void serve(const char *schema, const char *description, const oneop_library *own) {
  const auto name = parse(description)->name;
  if (c10::Dispatcher::singleton().findSchema({name, ""}))
    throw AttachError(text(name, " is registered already, from Python or from another library, and stays as it is. ",
                           "Load one library for each operator."));
  auto fragment = std::make_unique<torch::Library>(torch::Library::FRAGMENT, name.substr(0, name.find("::")),
                                                   std::nullopt, __FILE__, __LINE__);
  fragment->def(schema, {at::Tag::pt2_compliant_tag});
  attach(description, own);
  fragment.release(); // never destroyed: that would take the operator out of the dispatcher
}

// What `call` throws, as text that is valid until this thread's next call; NULL if nothing.
template <class Call> const char *reported(Call &&call) {
  static thread_local std::string problem;
  try {
    call();
    return nullptr;
  } catch (const c10::Error &error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception &error) {
    problem = error.what();
  } catch (...) {
    problem = "an unknown C++ exception";
  }
  return problem.c_str();
}

} // namespace

// ---- What the loader calls -------------------------------------------------------------------------------------------

extern "C" {
// Attaches one operator's kernels. Returns NULL, or why not (valid until this thread's next call).
ONEOP_EXPORT const char *oneop_torch_attach(const char *description) {
  return reported([&] { attach(description); });
}

// Gives an attached operator the library of its CUDA kernels, or none (an empty path). Returns as above.
ONEOP_EXPORT const char *oneop_torch_attach_cuda(const char *name, const char *library) {
  return reported([&] { attach_cuda(name, library); });
}

// Takes an operator's kernels away: its next call asks for new ones, through the hooks. Calls that run go on.
ONEOP_EXPORT void oneop_torch_detach(const char *name) { detach(name); }

// Makes an operator known whose kernels are linked into this library. Returns as oneop_torch_attach does.
ONEOP_EXPORT const char *oneop_torch_serve(const char *schema, const char *description, const oneop_library *own) {
  return reported([&] { serve(schema, description, own); });
}

// Lends what only Python can do. Without it, a failed call throws c10::Error, and torch.func does not exist.
ONEOP_EXPORT void oneop_torch_set_hooks(const oneop_torch_hooks *hooks) {
  python.store(hooks, std::memory_order_release);
}
}
