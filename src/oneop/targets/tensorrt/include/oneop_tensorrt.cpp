/* oneop_tensorrt.cpp: plugins and their creators, the same for every operator. C++17. See oneop_tensorrt.h. */
#include "oneop_tensorrt.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "oneop_shapes.h"

extern "C" const oneop_library *oneop_library_v1(void); // the kernels' table, of this very library

namespace oneop::tensorrt {

using namespace nvinfer1;

namespace {

constexpr const char *fingerprint_field = "oneop_fingerprint"; // of the definition
constexpr const char *counts_field = "oneop_inputs";           // how many tensors each input has: "1 0 1"
constexpr const char *present_field = "oneop_present";         // one digit an attribute: whether it has a value
constexpr const char *tensors_field = "oneop_tensors";         // how many tensors TensorRT hands over

[[noreturn]] void refuse(const std::string &message) { throw std::runtime_error(message); }

std::string quoted(const std::string &text) { return "`" + text + "`"; }

// ---- Messages --------------------------------------------------------------------------------------------------------

std::atomic<ILoggerFinder *> finder{nullptr};

void log(ILogger::Severity severity, const std::string &message) noexcept {
  try {
    ILoggerFinder *const found = finder.load();
    ILogger *const logger = found ? found->findLogger() : nullptr;
    if (logger)
      logger->log(severity, message.c_str());
    else
      std::fprintf(stderr, "%s\n", message.c_str());
  } catch (...) { // a logger that throws: there is nobody to tell
    std::fprintf(stderr, "%s\n", message.c_str());
  }
}

void report(ILogger::Severity severity, const Operator &op, const std::string &layer, const char *message) noexcept {
  try {
    const std::string name = op.name;
    const bool named = std::strncmp(message, op.name, name.size()) == 0;
    log(severity, (named ? "" : name + ": ") + message + (layer.empty() ? "" : " (layer " + quoted(layer) + ")"));
  } catch (...) {
    std::fprintf(stderr, "%s: %s\n", op.name, message);
  }
}

/* Runs what may throw for TensorRT, which takes no exceptions. Returns 0 where nothing was thrown. */
template <class Body> int32_t guarded(const Operator &op, const std::string &layer, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    report(ILogger::Severity::kERROR, op, layer, error.what());
  } catch (...) {
    report(ILogger::Severity::kERROR, op, layer, "an exception of an unknown kind was thrown");
  }
  return 1;
}

std::string shown(const int64_t *sizes, int32_t ndim) {
  std::string text = "(";
  for (int32_t d = 0; d < ndim; ++d)
    text += (d ? ", " : "") + (sizes[d] == ONEOP_UNKNOWN ? "?" : std::to_string(sizes[d]));
  return text + (ndim == 1 ? ",)" : ")");
}

// ---- Memory on the device --------------------------------------------------------------------------------------------

constexpr std::size_t alignment = 256; // what cudaMalloc gives

#if defined(ONEOP_TENSORRT_STAND_IN) // the CPU's kernels stand in for CUDA's: tests without a GPU

constexpr int32_t device_type = 1;

int32_t device_number() { return 0; }
void *allocate(std::size_t bytes, cudaStream_t) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void release(void *memory, cudaStream_t) { std::free(memory); }
std::string last_error() { return ""; }
void write(void *target, const int32_t *value, cudaStream_t) { std::memcpy(target, value, sizeof *value); }

#else

constexpr int32_t device_type = 2;

int32_t device_number() {
  int number = 0;
  return cudaGetDevice(&number) == cudaSuccess ? number : 0;
}

void *allocate(std::size_t bytes, cudaStream_t stream) {
  void *memory = nullptr;
  return cudaMallocAsync(&memory, bytes, stream) == cudaSuccess ? memory : nullptr;
}

void release(void *memory, cudaStream_t stream) {
  if (cudaFreeAsync(memory, stream) != cudaSuccess)
    log(ILogger::Severity::kERROR, "oneop: scratch memory could not be given back");
}

std::string last_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

/* The value is copied before this returns: memory that is not page-locked is staged. */
void write(void *target, const int32_t *value, cudaStream_t stream) {
  const cudaError_t error = cudaMemcpyAsync(target, value, sizeof *value, cudaMemcpyHostToDevice, stream);
  if (error != cudaSuccess)
    refuse(std::string("a size could not be written to the device: ") + cudaGetErrorString(error));
}

#endif

// ---- Types -----------------------------------------------------------------------------------------------------------

bool same(const oneop_dtype &a, const oneop_dtype &b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

const Type *type_of(const oneop_dtype &dtype) {
  for (const Type &item : types)
    if (same(item.dtype, dtype))
      return &item;
  return nullptr;
}

const Type *type_of(DataType type) {
  for (const Type &item : types)
    if (item.type == type)
      return &item;
  return nullptr;
}

/* A kernel that plugins can run: on this device, with dtypes that TensorRT has. */
bool is_served(const oneop_operator &entry, const oneop_kernel &kernel) {
  bool served = kernel.device_type == device_type;
  for (int32_t i = 0; i < entry.n_dtypes; ++i)
    served = served && type_of(kernel.dtypes[i]) != nullptr;
  return served;
}

bool describes(const Operator &op, const oneop_operator &entry) {
  return std::strcmp(entry.fingerprint, op.fingerprint) == 0 &&
         op.inputs.size() == static_cast<std::size_t>(entry.n_inputs) &&
         op.outputs.size() == static_cast<std::size_t>(entry.n_outputs) &&
         op.attributes.size() == static_cast<std::size_t>(entry.n_attributes);
}

const oneop_operator &entry_of(const Operator &op) {
  const oneop_library *library = oneop_library_v1();
  if (library->abi_version != ONEOP_ABI_VERSION)
    refuse("the kernels have another version of oneop's binary interface. Build the library again.");
  for (int32_t i = 0; i < library->n_operators; ++i)
    if (std::strcmp(library->operators[i].name, op.name) == 0 && describes(op, library->operators[i]))
      return library->operators[i];
  refuse("the plugin's sources describe another definition than the kernels. Build the library again.");
}

// ---- One call of the kernel library ----------------------------------------------------------------------------------

/* What the kernel library may ask for; it only fails here. */
struct Context : oneop_context {
  Context() : oneop_context{no_loop, no_memory, no_output, take_note, nullptr} {}

  std::string message() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return message_;
  }

  static void take_note(oneop_context *context, const char *message) {
    auto &self = *static_cast<Context *>(context);
    try {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      if (self.message_.empty())
        self.message_ = *message ? message : "failed and gave no message";
    } catch (...) { // no memory for the message: the call fails by its status
    }
  }

private:
  static void no_loop(oneop_context *, int64_t, int64_t, int64_t, void (*)(void *, int64_t, int64_t), void *) {}
  static void *no_memory(oneop_context *, std::size_t) { return nullptr; }
  static oneop_tensor *no_output(oneop_context *, int32_t, const int64_t *, int32_t) { return nullptr; }

  std::mutex mutex_;
  std::string message_;
};

struct Dimensions {
  int32_t ndim = 0;
  std::array<int64_t, ONEOP_MAX_NDIM> sizes{};
};

/* -1 is a size that TensorRT does not know yet. */
Dimensions dimensions_of(const Dims &dims) {
  Dimensions found;
  found.ndim = dims.nbDims;
  for (int32_t d = 0; d < dims.nbDims; ++d)
    found.sizes[static_cast<std::size_t>(d)] = dims.d[d] < 0 ? ONEOP_UNKNOWN : dims.d[d];
  return found;
}

/* The tensors of a call as the kernel library sees them. */
struct Call {
  Call(const Operator &op, const oneop_operator &entry, const std::vector<oneop_attribute> &attributes,
       const Places &places)
      : op(op), entry(entry), places(places), attributes(attributes) {
    std::size_t count = op.outputs.size();
    for (const auto &place : places)
      count += place.size();
    tensors.resize(count, oneop_tensor{nullptr, {device_type, 0}, 0, {0, 0, 1}, nullptr, nullptr, 0});
    dimensions.resize(count);
    arguments.resize(op.inputs.size() + op.outputs.size());
    dims.resize(static_cast<std::size_t>(entry.n_dims) + 1, ONEOP_UNKNOWN);
    std::size_t at = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::size_t length = i < places.size() ? places[i].size() : 1;
      arguments[i] = {tensors.data() + at, static_cast<int64_t>(length)};
      at += length;
    }
    for (std::size_t i = 0; i < count; ++i)
      tensors[i].shape = dimensions[i].sizes.data();
  }

  void set_input(std::size_t input, std::size_t element, const Dimensions &given) {
    oneop_tensor &tensor = arguments[input].tensors[element];
    if (given.ndim < 0)
      refuse("input " + quoted(op.inputs[input].name) +
             " is absent, which the node does not say. Export the model again" + " with fallback=\"none\".");
    tensor.ndim = given.ndim;
    std::copy_n(given.sizes.begin(), given.ndim, tensor.shape);
  }

  oneop_tensor &output(std::size_t number) { return arguments[op.inputs.size() + number].tensors[0]; }

  oneop_call described(Context &context) {
    return {arguments.data(), arguments.data() + op.inputs.size(), attributes.data(), dims.data(), &context};
  }

  /* Checks the inputs' sizes and gives the outputs theirs. */
  void fit(Context &context) {
    const oneop_call call = described(context);
    if (entry.shapes(&call) != 0)
      refuse(context.message());
  }

  const Operator &op;
  const oneop_operator &entry;
  const Places &places;
  const std::vector<oneop_attribute> &attributes;
  std::vector<oneop_tensor> tensors;
  std::vector<Dimensions> dimensions;
  std::vector<oneop_argument> arguments; // inputs, then outputs
  std::vector<int64_t> dims;
};

/* Calls set(input, element, index) for each tensor; index is its number in TensorRT's order. */
template <class Set> void each_tensor(const Places &places, Set set) {
  for (std::size_t i = 0; i < places.size(); ++i)
    for (std::size_t e = 0; e < places[i].size(); ++e)
      set(i, e, places[i][e]);
}

// ---- A run of a kernel -----------------------------------------------------------------------------------------------

std::size_t bytes_of(const oneop_tensor &tensor) {
  std::size_t bytes = tensor.dtype.bits / 8u;
  for (int32_t d = 0; d < tensor.ndim; ++d)
    bytes *= static_cast<std::size_t>(tensor.shape[d]);
  return bytes;
}

/* What a kernel may ask for while it runs. */
struct Run : Context {
  Run(Call &call, std::vector<int64_t> capacities, void *workspace, std::size_t bytes, IGpuAllocator *allocator,
      cudaStream_t on)
      : call_(call), capacities_(std::move(capacities)), resized_(call.op.outputs.size(), false), allocator_(allocator),
        stream_(on), workspace_(static_cast<char *>(workspace)), left_(workspace ? bytes : 0) {
    parallel_for = loop;
    oneop_context::scratch = give;
    oneop_context::resize = size_output;
    oneop_context::stream = on;
  }
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

  /* In the order of the stream: what was launched still has its memory. */
  ~Run() {
    for (void *block : blocks_) {
      if (!allocator_)
        release(block, stream_);
      else if (!allocator_->deallocateAsync(block, stream_))
        log(ILogger::Severity::kERROR, "oneop: the allocator did not take scratch memory back");
    }
  }

  void *scratch_memory(std::size_t bytes) {
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (bytes > std::numeric_limits<std::size_t>::max() - alignment)
      refuse("out of memory (scratch)");
    if (rounded <= left_) {
      void *const found = workspace_;
      workspace_ += rounded;
      left_ -= rounded;
      return found;
    }
    blocks_.reserve(blocks_.size() + 1);
    void *const found =
        allocator_ ? allocator_->allocateAsync(rounded, alignment, 0, stream_) : allocate(rounded, stream_);
    if (!found)
      refuse("out of memory (scratch): " + std::to_string(rounded) + " bytes");
    blocks_.push_back(found);
    return found;
  }

  /* An output that nobody uses may have no memory; the kernel writes it all the same. */
  void replace_unused() {
    for (std::size_t i = 0; i < call_.op.outputs.size(); ++i) {
      oneop_tensor &tensor = call_.output(i);
      const bool known =
          std::find(tensor.shape, tensor.shape + tensor.ndim, ONEOP_UNKNOWN) == tensor.shape + tensor.ndim;
      if (tensor.data == nullptr && known)
        tensor.data = scratch_memory(bytes_of(tensor));
    }
  }

  oneop_tensor *sized(int32_t output, const int64_t *sizes, int32_t ndim) {
    if (output < 0 || static_cast<std::size_t>(output) >= call_.op.outputs.size())
      refuse("the kernel resized an output that does not exist. Count outputs from 0, in the definition's order.");
    const auto number = static_cast<std::size_t>(output);
    oneop_tensor &tensor = call_.output(number);
    bool fits = ndim == tensor.ndim;
    for (int32_t d = 0; fits && d < ndim; ++d)
      fits = sizes[d] >= 0 && (tensor.shape[d] == sizes[d] || tensor.shape[d] == ONEOP_UNKNOWN);
    if (!fits)
      refuse("the kernel resized output " + quoted(call_.op.outputs[number].name) + " to " + shown(sizes, ndim) +
             (resized_[number] ? ", and to " + shown(tensor.shape, tensor.ndim) + " before. Resize an output once."
                               : ", which does not fit its definition. Resize it to sizes that fit."));
    for (std::size_t u = 0; u < call_.op.unknowns.size(); ++u) {
      const Unknown &unknown = call_.op.unknowns[u];
      if (unknown.output == output && sizes[ndim - unknown.from_end] > capacities_[u])
        refuse("the kernel gave `?" + std::string(unknown.name) + "` the size " +
               std::to_string(sizes[ndim - unknown.from_end]) + "; the engine has memory for " +
               std::to_string(capacities_[u]) + ". Build the library with a larger bound: bounds={\"" + call_.op.name +
               "\": {\"" + unknown.name + "\": \"...\"}}.");
    }
    std::copy_n(sizes, ndim, tensor.shape);
    resized_[number] = true;
    if (tensor.data == nullptr)
      tensor.data = scratch_memory(bytes_of(tensor));
    return &tensor;
  }

private:
  static void loop(oneop_context *, int64_t begin, int64_t end, int64_t, void (*body)(void *, int64_t, int64_t),
                   void *data) {
    if (begin < end)
      body(data, begin, end);
  }

  static void *give(oneop_context *context, std::size_t bytes) {
    try {
      return static_cast<Run *>(context)->scratch_memory(bytes);
    } catch (const std::exception &error) {
      take_note(context, error.what());
      return nullptr;
    }
  }

  static oneop_tensor *size_output(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim) {
    try {
      return static_cast<Run *>(context)->sized(output, sizes, ndim);
    } catch (const std::exception &error) {
      take_note(context, error.what());
      return nullptr;
    }
  }

  Call &call_;
  std::vector<int64_t> capacities_;
  std::vector<bool> resized_;
  IGpuAllocator *allocator_;
  cudaStream_t stream_;
  char *workspace_;
  std::size_t left_;
  std::vector<void *> blocks_;
};

/* The dtypes of a run: one a dtype variable, and the kernel for them. */
class Typing {
public:
  explicit Typing(const oneop_operator &entry)
      : entry_(entry), dtypes_(static_cast<std::size_t>(entry.n_dtypes), oneop_dtype{0, 0, 0}),
        device_(device_number()) {}

  void describe(oneop_tensor &tensor, int32_t element, const PluginTensorDesc &given, void *data) {
    const Type *const type = type_of(given.type);
    oneop_dtype &dtype = dtypes_[static_cast<std::size_t>(element)];
    const bool known = dtype.lanes != 0;
    if (!type || given.format != TensorFormat::kLINEAR || (known && !same(dtype, type->dtype)))
      refuse("TensorRT hands over a dtype or format that it was not promised");
    dtype = type->dtype;
    tensor.dtype = dtype;
    tensor.device.id = device_;
    tensor.data = data;
  }

  const oneop_kernel &kernel() const {
    for (int32_t k = 0; k < entry_.n_kernels; ++k) {
      bool fits = is_served(entry_, entry_.kernels[k]);
      for (std::size_t i = 0; fits && i < dtypes_.size(); ++i) // a variable that no tensor of this call has is free
        fits = dtypes_[i].lanes == 0 || same(dtypes_[i], entry_.kernels[k].dtypes[i]);
      if (fits)
        return entry_.kernels[k];
    }
    refuse("there is no kernel for these dtypes");
  }

private:
  const oneop_operator &entry_;
  std::vector<oneop_dtype> dtypes_;
  int32_t device_;
};

/* The size tensors, which stand behind the outputs. */
void write_sizes(Call &call, void *const *outputs, cudaStream_t stream) {
  for (std::size_t u = 0; u < call.op.unknowns.size(); ++u) {
    const Unknown &unknown = call.op.unknowns[u];
    const oneop_tensor &tensor = call.output(static_cast<std::size_t>(unknown.output));
    const int64_t size = tensor.shape[tensor.ndim - unknown.from_end];
    if (size > std::numeric_limits<int32_t>::max())
      refuse("`?" + std::string(unknown.name) + "` is " + std::to_string(size) + "; TensorRT takes 32 bits");
    const auto value = static_cast<int32_t>(size);
    write(outputs[call.op.outputs.size() + u], &value, stream);
  }
}

// ---- Attributes ------------------------------------------------------------------------------------------------------

oneop_attribute as_attribute(const Attribute &item, const Value &value) {
  oneop_attribute found{};
  found.kind = std::holds_alternative<std::monostate>(value) ? ONEOP_NONE : item.kind;
  if (const auto *f = std::get_if<double>(&value))
    found.value.f = *f;
  else if (const auto *i = std::get_if<int64_t>(&value))
    found.value.i = *i;
  else if (const auto *b = std::get_if<bool>(&value))
    found.value.i = *b ? 1 : 0;
  else if (const auto *s = std::get_if<std::string>(&value))
    found.value.s = {s->data(), static_cast<int64_t>(s->size())};
  else if (const auto *fs = std::get_if<std::vector<double>>(&value))
    found.value.fs = {fs->data(), static_cast<int64_t>(fs->size())};
  else if (const auto *is = std::get_if<std::vector<int64_t>>(&value))
    found.value.is = {is->data(), static_cast<int64_t>(is->size())};
  return found;
}

std::vector<oneop_attribute> as_attributes(const Operator &op, const std::vector<Value> &values) {
  std::vector<oneop_attribute> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    found.push_back(as_attribute(op.attributes[i], values[i]));
  return found;
}

std::string number_text(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <class Item> std::string list_text(const std::vector<Item> &values) {
  std::string text = "[";
  for (const Item &value : values) {
    if constexpr (std::is_same_v<Item, double>)
      text += (text.size() > 1 ? ", " : "") + number_text(value);
    else
      text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  }
  return text + "]";
}

std::string value_text(const Value &value) {
  if (const auto *f = std::get_if<double>(&value))
    return number_text(*f);
  if (const auto *i = std::get_if<int64_t>(&value))
    return std::to_string(*i);
  if (const auto *b = std::get_if<bool>(&value))
    return *b ? "True" : "False";
  if (const auto *s = std::get_if<std::string>(&value))
    return "'" + *s + "'";
  if (const auto *fs = std::get_if<std::vector<double>>(&value))
    return list_text(*fs);
  if (const auto *is = std::get_if<std::vector<int64_t>>(&value))
    return list_text(*is);
  return "None";
}

// ---- Fields ----------------------------------------------------------------------------------------------------------

/* By oneop_attribute_kind: what the definition calls it, and what TensorRT's ONNX parser makes of it. */
struct Kind {
  const char *annotation;
  PluginFieldType type;
  int32_t length;
};
constexpr Kind kinds[] = {{"None", PluginFieldType::kUNKNOWN, 0},   {"float", PluginFieldType::kFLOAT32, 1},
                          {"int", PluginFieldType::kINT64, 1},      {"bool", PluginFieldType::kINT32, 1},
                          {"str", PluginFieldType::kCHAR, 0},       {"list[float]", PluginFieldType::kFLOAT32, 0},
                          {"list[int]", PluginFieldType::kINT64, 0}};

const char *name_of(PluginFieldType type) {
  static const char *const names[] = {"kFLOAT16", "kFLOAT32", "kFLOAT64", "kINT8", "kINT16", "kINT32",
                                      "kCHAR",    "kDIMS",    "kUNKNOWN", "kBF16", "kINT64"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(names) ? names[index] : "another type";
}

template <class From, class To> void append(const PluginField &field, std::vector<To> &found) {
  const auto *const data = static_cast<const From *>(field.data);
  for (int32_t i = 0; i < field.length; ++i)
    found.push_back(static_cast<To>(data[i]));
}

bool has_data(const PluginField &field) { return field.length == 0 || (field.length > 0 && field.data != nullptr); }

/* The numbers of a field, false where it holds something else. Integers are taken where floats are wanted. */
template <class To> bool read_numbers(const PluginField &field, std::vector<To> &found) {
  constexpr bool floats = std::is_same_v<To, double>;
  if (!has_data(field))
    return false;
  switch (field.type) {
  case PluginFieldType::kFLOAT32:
    return floats && (append<float>(field, found), true);
  case PluginFieldType::kFLOAT64:
    return floats && (append<double>(field, found), true);
  case PluginFieldType::kINT8:
    return append<int8_t>(field, found), true;
  case PluginFieldType::kINT16:
    return append<int16_t>(field, found), true;
  case PluginFieldType::kINT32:
    return append<int32_t>(field, found), true;
  case PluginFieldType::kINT64:
    return append<int64_t>(field, found), true;
  default:
    return false;
  }
}

/* A text; the zero that the parser puts behind it is no part of it. */
bool read_text(const PluginField &field, std::string &found) {
  if (field.type != PluginFieldType::kCHAR || !has_data(field))
    return false;
  if (field.length > 0)
    found.assign(static_cast<const char *>(field.data), static_cast<std::size_t>(field.length));
  if (!found.empty() && found.back() == '\0')
    found.pop_back();
  return true;
}

bool read_value(oneop_attribute_kind kind, const PluginField &field, Value &found) {
  std::vector<double> floats;
  std::vector<int64_t> ints;
  std::string text;
  switch (kind) {
  case ONEOP_FLOAT:
    return read_numbers(field, floats) && floats.size() == 1 && (found = floats[0], true);
  case ONEOP_INT:
    return read_numbers(field, ints) && ints.size() == 1 && (found = ints[0], true);
  case ONEOP_BOOL:
    return read_numbers(field, ints) && ints.size() == 1 && (found = (ints[0] != 0), true);
  case ONEOP_STRING:
    return read_text(field, text) && (found = std::move(text), true);
  case ONEOP_FLOATS:
    return read_numbers(field, floats) && (found = std::move(floats), true);
  case ONEOP_INTS:
    return read_numbers(field, ints) && (found = std::move(ints), true);
  default:
    return false;
  }
}

/* The fields that a plugin is made from, by name. */
class Fields {
public:
  explicit Fields(const PluginFieldCollection *given) : given_(given) {
    if (given_ == nullptr || given_->nbFields < 0 || (given_->nbFields > 0 && given_->fields == nullptr))
      refuse("there is no collection of fields to make the plugin from");
  }

  const PluginField *find(const char *name) const {
    for (int32_t i = 0; i < given_->nbFields; ++i)
      if (given_->fields[i].name != nullptr && std::strcmp(given_->fields[i].name, name) == 0)
        return &given_->fields[i];
    return nullptr;
  }

  std::string text(const char *name) const {
    std::string found;
    const PluginField *const field = find(name);
    if (field != nullptr && !read_text(*field, found))
      refuse("field " + quoted(name) + " is no text. Export the model again.");
    return found;
  }

  Value value(const Attribute &item) const {
    const PluginField *const field = find(item.name);
    if (field == nullptr) {
      if (item.required)
        refuse("attribute " + quoted(item.name) + " is missing, and the definition gives it no default. Write it on" +
               " the node, as " + kinds[item.kind].annotation + ".");
      return item.value;
    }
    Value found;
    if (!read_value(item.kind, *field, found))
      refuse("attribute " + quoted(item.name) + " is given as " + name_of(field->type) + " with " +
             std::to_string(field->length) + " entries; the definition says " + kinds[item.kind].annotation +
             ". Write it as that.");
    return found;
  }

  /* A name that is none of the operator's is a mistake: the value would be lost. */
  void refuse_others(const Operator &op) const {
    for (int32_t i = 0; i < given_->nbFields; ++i) {
      const std::string name = given_->fields[i].name != nullptr ? given_->fields[i].name : "";
      const bool ours = name.rfind("oneop_", 0) == 0 || name.rfind("plugin_", 0) == 0 ||
                        std::any_of(op.attributes.begin(), op.attributes.end(),
                                    [&](const Attribute &item) { return name == item.name; });
      if (!ours)
        refuse("there is no attribute " + quoted(name) + ". Leave the field out, or correct its name.");
    }
  }

private:
  const PluginFieldCollection *given_;
};

/* "1 0 3" */
std::vector<int32_t> counts_of(const Operator &op, const std::string &text) {
  std::vector<int32_t> found;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t used = 0;
    found.push_back(static_cast<int32_t>(std::strtol(text.c_str() + at, nullptr, 10)));
    used = text.find(' ', at);
    at = used == std::string::npos ? text.size() : used + 1;
  }
  if (!found.empty() && found.size() != op.inputs.size())
    refuse(std::string("field ") + quoted(counts_field) + " says " + quoted(text) + "; the definition has " +
           std::to_string(op.inputs.size()) + " inputs. Export the model again.");
  return found;
}

void require_fingerprint(const Operator &op, const std::string &given, const char *what, const char *remedy) {
  if (given != op.fingerprint)
    refuse(std::string("this ") + what + " was made from another definition (fingerprint " +
           (given.empty() ? "unknown" : given) + ") than this library (fingerprint " + op.fingerprint + "). " + remedy +
           ", or load the library of that definition.");
}

/* From the node of an ONNX file, or from who adds the plugin to a network. */
std::unique_ptr<Plugin> create(const Operator &op, const char *layer, const Fields &fields) {
  fields.refuse_others(op);
  if (fields.find(fingerprint_field) != nullptr)
    require_fingerprint(op, fields.text(fingerprint_field), "model", "Export the model again");
  std::vector<Value> values;
  for (const Attribute &item : op.attributes)
    values.push_back(fields.value(item));
  return std::make_unique<Plugin>(op, layer, std::move(values), counts_of(op, fields.text(counts_field)), -1);
}

/* From an engine. */
std::unique_ptr<Plugin> restore(const Operator &op, const char *layer, const Fields &fields) {
  require_fingerprint(op, fields.text(fingerprint_field), "engine", "Build the engine again");
  const std::string present = fields.text(present_field);
  std::vector<int64_t> tensors;
  const PluginField *const field = fields.find(tensors_field);
  if (present.size() != op.attributes.size() || field == nullptr || !read_numbers(*field, tensors) ||
      tensors.size() != 1)
    refuse("the engine's fields are damaged. Build the engine again.");
  std::vector<Value> values;
  for (std::size_t i = 0; i < op.attributes.size(); ++i) {
    const Attribute &item = op.attributes[i];
    if (present[i] == '0')
      values.emplace_back();
    else if (present[i] == 'e' && item.kind == ONEOP_FLOATS)
      values.emplace_back(std::vector<double>{});
    else if (present[i] == 'e' && item.kind == ONEOP_INTS)
      values.emplace_back(std::vector<int64_t>{});
    else if (fields.find(item.name) == nullptr)
      refuse("the engine lost attribute " + quoted(item.name) + ". Build the engine again.");
    else
      values.push_back(fields.value(item));
  }
  return std::make_unique<Plugin>(op, layer, std::move(values), counts_of(op, fields.text(counts_field)),
                                  static_cast<int32_t>(tensors[0]));
}

// ---- Inputs ----------------------------------------------------------------------------------------------------------

/* Nobody said which inputs are absent: those at the end. */
Places place_by_order(const Operator &op, int32_t n_inputs) {
  const bool variadic = op.inputs.back().arity == Arity::variadic;
  const auto last = static_cast<int32_t>(op.inputs.size()) - 1;
  if (!variadic && n_inputs > last + 1)
    refuse("TensorRT hands over " + std::to_string(n_inputs) + " inputs; the definition has " +
           std::to_string(last + 1) + ". Connect as many.");
  Places places(op.inputs.size());
  for (int32_t i = 0; i < n_inputs; ++i)
    places[static_cast<std::size_t>(std::min(i, last))].push_back(i);
  return places;
}

Places place_by_counts(const Operator &op, const std::vector<int32_t> &counts, int32_t n_inputs) {
  const int32_t there = std::accumulate(counts.begin(), counts.end(), 0);
  const bool compact = n_inputs == there;
  Places places(op.inputs.size());
  int32_t at = 0, end = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (int32_t e = 0; e < counts[i]; ++e)
      places[i].push_back(at++);
    end = counts[i] > 0 ? at : end;
    at += counts[i] == 0 && !compact ? 1 : 0;
  }
  if (end > n_inputs || n_inputs > at)
    refuse("TensorRT hands over " + std::to_string(n_inputs) + " inputs; the model says that there are " +
           std::to_string(there) + ". Export the model again.");
  return places;
}

} // namespace

void set_logger_finder(ILoggerFinder *given) noexcept {
  if (given != nullptr)
    finder.store(given);
}

// ---- Sizes -----------------------------------------------------------------------------------------------------------

Size::Size(IExprBuilder &builder, const IDimensionExpr &expression) {
  if (expression.isConstant() && expression.getConstantValue() >= 0) {
    value_ = expression.getConstantValue();
  } else {
    builder_ = &builder;
    expression_ = &expression;
  }
}

const IDimensionExpr *Size::in(IExprBuilder &builder) const {
  const IDimensionExpr *const found = expression_ ? expression_ : builder.constant(value_);
  if (!found)
    refuse("TensorRT made no expression of a size");
  return found;
}

Size combine(DimensionOperation operation, const Size &a, const Size &b) {
  IExprBuilder &builder = *(a.builder_ ? a.builder_ : b.builder_);
  const IDimensionExpr *const found = builder.operation(operation, *a.in(builder), *b.in(builder));
  if (!found)
    refuse("TensorRT made no expression of a size");
  Size result(0);
  result.builder_ = &builder;
  result.expression_ = found;
  return result;
}

namespace {

using Checked = int64_t (*)(int64_t, int64_t, const char *, oneop_fault *);

Size compute(DimensionOperation operation, Checked known, const char *what, const Size &a, const Size &b) {
  if (!a.is_known() || !b.is_known())
    return combine(operation, a, b);
  oneop_fault fault{nullptr, nullptr};
  const int64_t value = known(a.value(), b.value(), what, &fault);
  if (fault.what)
    refuse("an output's size, " + std::to_string(a.value()) + " " + what + " " + std::to_string(b.value()) + ", " +
           fault.what + ". Pass other attributes or inputs.");
  return Size(value);
}

int64_t known_min(int64_t a, int64_t b, const char *, oneop_fault *) { return oneop_min(a, b); }
int64_t known_max(int64_t a, int64_t b, const char *, oneop_fault *) { return oneop_max(a, b); }

} // namespace

Size operator+(const Size &a, const Size &b) { return compute(DimensionOperation::kSUM, oneop_add, "+", a, b); }
Size operator-(const Size &a, const Size &b) { return compute(DimensionOperation::kSUB, oneop_subtract, "-", a, b); }
Size operator*(const Size &a, const Size &b) { return compute(DimensionOperation::kPROD, oneop_multiply, "*", a, b); }
Size floor_divide(const Size &a, const Size &b) {
  return compute(DimensionOperation::kFLOOR_DIV, oneop_floor_divide, "//", a, b);
}
Size modulo(const Size &a, const Size &b) {
  return a.is_known() && b.is_known() ? compute(DimensionOperation::kSUB, oneop_modulo, "%", a, b)
                                      : a - floor_divide(a, b) * b;
}
Size min(const Size &a, const Size &b) { return compute(DimensionOperation::kMIN, known_min, "min", a, b); }
Size max(const Size &a, const Size &b) { return compute(DimensionOperation::kMAX, known_max, "max", a, b); }

Size Shapes::input(std::size_t number, std::size_t from_end) const {
  const auto &sizes = inputs_.at(number).at(0);
  return sizes.at(sizes.size() - from_end);
}

Size Shapes::attribute(std::size_t number) const { return Size(std::get<int64_t>(attributes_.at(number))); }

Size Shapes::most_elements() const {
  Size most(0);
  for (const auto &tensors : inputs_)
    for (const auto &sizes : tensors)
      most = max(most, std::accumulate(sizes.begin(), sizes.end(), Size(1),
                                       [](const Size &a, const Size &b) { return a * b; }));
  return most;
}

Size Shapes::unknown(std::size_t number, const Size &most) {
  if (!builder_) {
    capacities.at(number) = most.value();
    return Size(ONEOP_UNKNOWN);
  }
  const IDimensionExpr *const upper = most.in(*builder_);
  const IDimensionExpr *const half = builder_->operation(DimensionOperation::kCEIL_DIV, *upper, *Size(2).in(*builder_));
  const IDimensionExpr *const found =
      half ? builder_->declareSizeTensor(static_cast<int32_t>(op_.outputs.size() + number), *half, *upper) : nullptr;
  if (!found)
    refuse("TensorRT takes no size tensor for `?" + std::string(op_.unknowns[number].name) + "`");
  return Size(*builder_, *found);
}

std::vector<Size> Shapes::leading(std::size_t number, std::size_t behind) const {
  const auto &sizes = inputs_.at(number).at(0);
  return {sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(behind)};
}

void Shapes::output(std::size_t number, std::initializer_list<Size> sizes) { outputs.at(number).assign(sizes); }

void Shapes::output(std::size_t number, std::vector<Size> leading, std::initializer_list<Size> sizes) {
  leading.insert(leading.end(), sizes.begin(), sizes.end());
  outputs.at(number) = std::move(leading);
}

// ---- Plugin ----------------------------------------------------------------------------------------------------------

Plugin::Plugin(const Operator &op, std::string layer, std::vector<Value> attributes, std::vector<int32_t> counts,
               int32_t n_tensors)
    : op_(op), entry_(entry_of(op)), layer_(std::move(layer)), attributes_(std::move(attributes)),
      values_(as_attributes(op, attributes_)), counts_(std::move(counts)), n_tensors_(n_tensors),
      metadata_(op.fingerprint) {
  for (std::size_t i = 0; i < attributes_.size(); ++i)
    metadata_ += std::string(" ") + op.attributes[i].name + "=" + value_text(attributes_[i]);
}

Plugin::Plugin(const Plugin &other)
    : op_(other.op_), entry_(other.entry_), layer_(other.layer_), attributes_(other.attributes_),
      values_(as_attributes(op_, attributes_)), counts_(other.counts_), n_tensors_(other.n_tensors_),
      allocator_(other.allocator_), metadata_(other.metadata_) {}

IPluginCapability *Plugin::getCapabilityInterface(PluginCapabilityType type) noexcept {
  switch (type) {
  case PluginCapabilityType::kCORE:
    return static_cast<IPluginV3OneCore *>(this);
  case PluginCapabilityType::kBUILD:
    return static_cast<IPluginV3OneBuild *>(this);
  case PluginCapabilityType::kRUNTIME:
    return static_cast<IPluginV3OneRuntime *>(this);
  }
  return nullptr;
}

IPluginV3 *Plugin::clone() noexcept {
  IPluginV3 *copy = nullptr;
  guarded(op_, layer_, [&] { copy = new Plugin(*this); });
  return copy;
}

IPluginV3 *Plugin::attachToContext(IPluginResourceContext *context) noexcept {
  IPluginV3 *copy = nullptr;
  guarded(op_, layer_, [&] {
    auto attached = std::make_unique<Plugin>(*this);
    attached->allocator_ = context ? context->getGpuAllocator() : nullptr;
    copy = attached.release();
  });
  return copy;
}

/* Absent inputs have a place of their own, by an empty name in the file, or none: what is handed over may be either. */
Places Plugin::place(int32_t n_inputs) const {
  const Places places = counts_.empty() ? place_by_order(op_, n_inputs) : place_by_counts(op_, counts_, n_inputs);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].empty() && op_.inputs[i].arity != Arity::optional)
      refuse("input " + quoted(op_.inputs[i].name) + " is absent, and it is not optional. Connect it.");
  return places;
}

int32_t Plugin::getNbOutputs() const noexcept { return static_cast<int32_t>(op_.outputs.size() + op_.unknowns.size()); }

int32_t Plugin::getOutputDataTypes(DataType *outputs, int32_t n_outputs, const DataType *inputs,
                                   int32_t n_inputs) const noexcept {
  return guarded(op_, layer_, [&] {
    if (n_outputs != getNbOutputs())
      refuse("TensorRT asks for " + std::to_string(n_outputs) + " outputs; the plugin has " +
             std::to_string(getNbOutputs()) + ".");
    for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
      outputs[i] = op_.outputs[i].type;
      each_tensor(place(n_inputs), [&](std::size_t input, std::size_t, int32_t index) {
        if (op_.inputs[input].element == op_.outputs[i].element)
          outputs[i] = inputs[index];
      });
    }
    for (std::size_t i = op_.outputs.size(); i < static_cast<std::size_t>(n_outputs); ++i)
      outputs[i] = DataType::kINT32; // size tensors
  });
}

int32_t Plugin::getOutputShapes(const DimsExprs *inputs, int32_t n_inputs, const DimsExprs *, int32_t n_shape_inputs,
                                DimsExprs *outputs, int32_t n_outputs, IExprBuilder &builder) noexcept {
  return guarded(op_, layer_, [&] {
    if (n_shape_inputs != 0)
      refuse("the plugin has no shape inputs. Leave tensorrt_plugin_shape_input_indices out of the node.");
    if (n_outputs != getNbOutputs())
      refuse("TensorRT asks for " + std::to_string(n_outputs) + " outputs; the plugin has " +
             std::to_string(getNbOutputs()) + ".");
    n_tensors_ = n_inputs;
    const Places places = place(n_inputs);
    Call call(op_, entry_, values_, places);
    InputSizes sizes(op_.inputs.size());
    each_tensor(places, [&](std::size_t input, std::size_t element, int32_t index) {
      Dimensions known;
      auto &own = sizes[input].emplace_back();
      known.ndim = inputs[index].nbDims;
      for (int32_t d = 0; d < known.ndim; ++d) {
        own.emplace_back(builder, *inputs[index].d[d]);
        known.sizes[static_cast<std::size_t>(d)] = own.back().is_known() ? own.back().value() : ONEOP_UNKNOWN;
      }
      call.set_input(input, element, known);
    });
    Context context;
    call.fit(context);
    Shapes shapes(op_, attributes_, sizes, &builder);
    op_.shapes(shapes);
    for (std::size_t i = 0; i < shapes.outputs.size(); ++i) {
      const auto &found = shapes.outputs[i];
      if (found.size() > Dims::MAX_DIMS)
        refuse("output " + quoted(op_.outputs[i].name) + " would have " + std::to_string(found.size()) +
               " dimensions; TensorRT takes " + std::to_string(Dims::MAX_DIMS) + " at most. Merge some of them.");
      outputs[i].nbDims = static_cast<int32_t>(found.size());
      for (std::size_t d = 0; d < found.size(); ++d)
        outputs[i].d[d] = found[d].in(builder);
    }
    for (std::size_t i = shapes.outputs.size(); i < static_cast<std::size_t>(n_outputs); ++i)
      outputs[i].nbDims = 0; // size tensors
  });
}

bool Plugin::supportsFormatCombination(int32_t position, const DynamicPluginTensorDesc *tensors, int32_t n_inputs,
                                       int32_t n_outputs) noexcept {
  bool supported = false;
  guarded(op_, layer_, [&] {
    if (position < 0 || position >= n_inputs + n_outputs || n_outputs != getNbOutputs())
      return;
    constexpr int32_t free = -1, size = -2; // an absent input; a size tensor
    std::vector<int32_t> elements(static_cast<std::size_t>(n_inputs + n_outputs), free);
    each_tensor(place(n_inputs), [&](std::size_t input, std::size_t, int32_t index) {
      elements[static_cast<std::size_t>(index)] = op_.inputs[input].element;
    });
    for (std::size_t i = 0; i < static_cast<std::size_t>(n_outputs); ++i)
      elements[static_cast<std::size_t>(n_inputs) + i] = i < op_.outputs.size() ? op_.outputs[i].element : size;
    const auto &asked = tensors[position].desc;
    const int32_t element = elements[static_cast<std::size_t>(position)];
    if (asked.format != TensorFormat::kLINEAR && element != free)
      return;
    if (element < 0) {
      supported = element == free || asked.type == DataType::kINT32;
      return;
    }
    /* Is there a kernel for this dtype and for those before it? What follows is not to be looked at. */
    for (int32_t k = 0; k < entry_.n_kernels && !supported; ++k) {
      const oneop_kernel &kernel = entry_.kernels[k];
      bool fits = is_served(entry_, kernel);
      for (int32_t i = 0; fits && i <= position; ++i)
        if (elements[static_cast<std::size_t>(i)] >= 0)
          fits = type_of(kernel.dtypes[elements[static_cast<std::size_t>(i)]])->type == tensors[i].desc.type;
      supported = fits;
    }
  });
  return supported;
}

/* Sizes that the definition refuses, or that TensorRT and the definition disagree on. */
void Plugin::check(const PluginTensorDesc *inputs, int32_t n_inputs, const PluginTensorDesc *outputs,
                   int32_t n_outputs) const {
  const Places places = place(n_inputs);
  Call call(op_, entry_, values_, places);
  each_tensor(places, [&](std::size_t input, std::size_t element, int32_t index) {
    call.set_input(input, element, dimensions_of(inputs[index].dims));
  });
  Context context;
  call.fit(context);
  for (std::size_t i = 0; i < op_.outputs.size() && i < static_cast<std::size_t>(n_outputs); ++i) {
    const oneop_tensor &wanted = call.output(i);
    const Dimensions given = dimensions_of(outputs[i].dims);
    bool agree = given.ndim == wanted.ndim;
    for (int32_t d = 0; agree && d < wanted.ndim; ++d) {
      const int64_t a = wanted.shape[d], b = given.sizes[static_cast<std::size_t>(d)];
      agree = a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN || a == b;
    }
    if (!agree)
      refuse("output " + quoted(op_.outputs[i].name) + " has shape " + shown(given.sizes.data(), given.ndim) +
             " in the engine; by its definition it is " + shown(wanted.shape, wanted.ndim) +
             ". Please report this to oneop, with the model.");
  }
}

int32_t Plugin::configurePlugin(const DynamicPluginTensorDesc *inputs, int32_t n_inputs,
                                const DynamicPluginTensorDesc *outputs, int32_t n_outputs) noexcept {
  return guarded(op_, layer_, [&] {
    std::vector<PluginTensorDesc> given, results;
    for (int32_t i = 0; i < n_inputs; ++i)
      given.push_back(inputs[i].desc);
    for (int32_t i = 0; i < n_outputs; ++i)
      results.push_back(outputs[i].desc);
    n_tensors_ = n_inputs;
    check(given.data(), n_inputs, results.data(), n_outputs);
  });
}

std::size_t Plugin::getWorkspaceSize(const DynamicPluginTensorDesc *, int32_t, const DynamicPluginTensorDesc *,
                                     int32_t) const noexcept {
  return op_.workspace;
}

int32_t Plugin::onShapeChange(const PluginTensorDesc *inputs, int32_t n_inputs, const PluginTensorDesc *outputs,
                              int32_t n_outputs) noexcept {
  return guarded(op_, layer_, [&] {
    n_tensors_ = n_inputs;
    check(inputs, n_inputs, outputs, n_outputs);
  });
}

int32_t Plugin::enqueue(const PluginTensorDesc *input_descriptions, const PluginTensorDesc *output_descriptions,
                        const void *const *inputs, void *const *outputs, void *workspace,
                        cudaStream_t stream) noexcept {
  return guarded(op_, layer_, [&] {
    if (n_tensors_ < 0)
      refuse("the plugin runs before TensorRT said how many inputs it has");
    const Places places = place(n_tensors_);
    Call call(op_, entry_, values_, places);
    Typing typing(entry_);
    InputSizes sizes(op_.inputs.size());
    each_tensor(places, [&](std::size_t input, std::size_t element, int32_t index) {
      const PluginTensorDesc &given = input_descriptions[index];
      call.set_input(input, element, dimensions_of(given.dims));
      typing.describe(call.arguments[input].tensors[element], op_.inputs[input].element, given,
                      const_cast<void *>(inputs[index]));
      sizes[input].emplace_back(given.dims.d, given.dims.d + given.dims.nbDims);
    });
    for (std::size_t i = 0; i < op_.outputs.size(); ++i)
      typing.describe(call.output(i), op_.outputs[i].element, output_descriptions[i], outputs[i]);

    Shapes shapes(op_, attributes_, sizes, nullptr);
    op_.shapes(shapes);
    Run run(call, shapes.capacities, workspace, op_.workspace, allocator_, stream);
    call.fit(run);
    run.replace_unused();
    const oneop_call described = call.described(run);
    const int status = typing.kernel().run(&described);
    if (status != 0 || !run.message().empty())
      refuse(run.message().empty() ? "the kernel failed and gave no message" : run.message());
    const std::string error = last_error();
    if (!error.empty())
      refuse("the kernel could not be launched: " + error);
    write_sizes(call, outputs, stream);
  });
}

const PluginFieldCollection *Plugin::getFieldsToSerialize() noexcept {
  const int32_t status = guarded(op_, layer_, [&] {
    fields_.clear();
    given_.clear();
    std::string counts;
    for (const int32_t count : counts_)
      counts += (counts.empty() ? "" : " ") + std::to_string(count);
    for (const Value &value : attributes_) {
      const auto *const floats = std::get_if<std::vector<double>>(&value);
      const auto *const ints = std::get_if<std::vector<int64_t>>(&value);
      const bool empty = (floats && floats->empty()) || (ints && ints->empty());
      given_ += std::holds_alternative<std::monostate>(value) ? '0' : empty ? 'e' : '1';
    }
    counts_text_ = counts;
    const auto add = [&](const char *name, const void *data, PluginFieldType type, std::size_t length) {
      fields_.emplace_back(name, data, type, static_cast<int32_t>(length));
    };
    add(fingerprint_field, op_.fingerprint, PluginFieldType::kCHAR, std::strlen(op_.fingerprint) + 1);
    add(present_field, given_.c_str(), PluginFieldType::kCHAR, given_.size() + 1);
    add(counts_field, counts_text_.c_str(), PluginFieldType::kCHAR, counts_text_.size() + 1);
    add(tensors_field, &n_tensors_, PluginFieldType::kINT32, 1);
    for (std::size_t i = 0; i < attributes_.size(); ++i) {
      const char *const name = op_.attributes[i].name;
      const Value &value = attributes_[i];
      if (given_[i] != '1')
        continue;
      if (const auto *f = std::get_if<double>(&value))
        add(name, f, PluginFieldType::kFLOAT64, 1);
      else if (const auto *n = std::get_if<int64_t>(&value))
        add(name, n, PluginFieldType::kINT64, 1);
      else if (const auto *b = std::get_if<bool>(&value))
        add(name, b, PluginFieldType::kINT8, 1);
      else if (const auto *s = std::get_if<std::string>(&value))
        add(name, s->c_str(), PluginFieldType::kCHAR, s->size() + 1);
      else if (const auto *fs = std::get_if<std::vector<double>>(&value))
        add(name, fs->data(), PluginFieldType::kFLOAT64, fs->size());
      else if (const auto *is = std::get_if<std::vector<int64_t>>(&value))
        add(name, is->data(), PluginFieldType::kINT64, is->size());
    }
    collection_.nbFields = static_cast<int32_t>(fields_.size());
    collection_.fields = fields_.data();
  });
  return status == 0 ? &collection_ : nullptr;
}

// ---- Creator ---------------------------------------------------------------------------------------------------------

Creator::Creator(const Operator &op) : op_(op) {
  for (const Attribute &item : op.attributes)
    fields_.emplace_back(item.name, nullptr, kinds[item.kind].type, kinds[item.kind].length);
  for (const char *name : {fingerprint_field, counts_field})
    fields_.emplace_back(name, nullptr, PluginFieldType::kCHAR, 0);
  collection_.nbFields = static_cast<int32_t>(fields_.size());
  collection_.fields = fields_.data();
}

IPluginV3 *Creator::createPlugin(const char *name, const PluginFieldCollection *fields, TensorRTPhase phase) noexcept {
  IPluginV3 *created = nullptr;
  guarded(op_, name ? name : "", [&] {
    const char *const layer = name ? name : "";
    const Fields given(fields);
    created = (phase == TensorRTPhase::kRUNTIME ? restore(op_, layer, given) : create(op_, layer, given)).release();
  });
  return created;
}

} // namespace oneop::tensorrt
