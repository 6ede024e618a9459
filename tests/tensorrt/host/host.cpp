// host.cpp: drives a library of plugins as TensorRT does, on the CPU: it looks up the creator, hands over the fields that
// the creator declares (and so loses those it does not), builds, serialises, deserialises and runs. Prints one JSON object.
#include "case.h"
#include "expressions.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

using namespace nvinfer1;

namespace host {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string &message) {
  if (!holds)
    throw Failure(message);
}

class Logger final : public ILogger {
public:
  void log(Severity severity, const char *message) noexcept override {
    lines.push_back((severity == Severity::kERROR ? "error: " : "other: ") + std::string(message));
  }
  std::vector<std::string> lines;
};

class Finder final : public ILoggerFinder {
public:
  ILogger *findLogger() override { return &logger; }
  Logger logger;
};

class Allocator final : public IGpuAllocator {
public:
  void *allocate(uint64_t size, uint64_t alignment, AllocatorFlags) noexcept override {
    ++taken;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  }
  bool deallocate(void *memory) noexcept override {
    std::free(memory);
    ++given_back;
    return true;
  }
  int32_t taken = 0, given_back = 0;
};

class Resources final : public IPluginResourceContext {
public:
  explicit Resources(IGpuAllocator *allocator) : allocator_(allocator) {}
  IGpuAllocator *getGpuAllocator() const noexcept override { return allocator_; }
  IErrorRecorder *getErrorRecorder() const noexcept override { return nullptr; }

private:
  IGpuAllocator *allocator_;
};

std::size_t bytes_of(DataType type) {
  switch (type) {
  case DataType::kINT64:
    return 8;
  case DataType::kFLOAT:
  case DataType::kINT32:
    return 4;
  case DataType::kHALF:
  case DataType::kBF16:
    return 2;
  default:
    return 1;
  }
}

std::size_t elements_of(const std::vector<int64_t> &sizes) {
  std::size_t count = 1;
  for (const int64_t size : sizes)
    count *= static_cast<std::size_t>(size);
  return count;
}

Dims dims_of(const std::vector<int64_t> &sizes) {
  Dims found{};
  found.nbDims = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), found.d);
  return found;
}

PluginTensorDesc description_of(const std::vector<int64_t> &sizes, DataType type) {
  return {dims_of(sizes), type, TensorFormat::kLINEAR, -1.0F};
}

// ---- The registry ---------------------------------------------------------------------------------------------------

using GetCreators = IPluginCreatorInterface *const *(*)(int32_t &);
using SetLoggerFinder = void (*)(ILoggerFinder *);

class Registry {
public:
  Registry(const std::string &path, ILoggerFinder *finder) {
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw Failure(std::string("the library cannot be loaded: ") + dlerror());
    const auto set_finder = reinterpret_cast<SetLoggerFinder>(dlsym(library, "setLoggerFinder"));
    const auto get_creators = reinterpret_cast<GetCreators>(dlsym(library, "getCreators"));
    require(set_finder && get_creators, "the library does not export getCreators and setLoggerFinder");
    set_finder(finder);
    int32_t count = 0;
    IPluginCreatorInterface *const *creators = get_creators(count);
    for (int32_t i = 0; i < count; ++i) {
      require(std::string(creators[i]->getInterfaceInfo().kind) == "PLUGIN CREATOR_V3ONE", "a creator of another kind");
      auto *const creator = static_cast<IPluginCreatorV3One *>(creators[i]);
      const std::vector<std::string> key = {creator->getPluginName(), creator->getPluginVersion(),
                                            creator->getPluginNamespace()};
      require(known_.emplace(key, creator).second, "two creators have one name");
      names.push_back(key[0]);
    }
  }

  IPluginCreatorV3One *find(const Case &wanted) const {
    const auto found = known_.find({wanted.name, wanted.version, wanted.name_space});
    require(found != known_.end(), "Plugin not found, are the plugin name, version, and namespace correct?");
    return found->second;
  }

  std::vector<std::string> names;

private:
  std::map<std::vector<std::string>, IPluginCreatorV3One *> known_;
};

// ---- Fields ---------------------------------------------------------------------------------------------------------

// Every block is as large as its content, so that a sanitizer sees who reads behind it.
class Fields {
public:
  void add(const Field &field) {
    auto *const memory = new char[field.data.size()];
    std::copy(field.data.begin(), field.data.end(), memory);
    blocks_.emplace_back(memory);
    names_.push_back(std::make_unique<std::string>(field.name));
    fields_.emplace_back(names_.back()->c_str(), field.data.empty() ? nullptr : memory, field.type, field.length);
  }
  PluginFieldCollection collection() { return {static_cast<int32_t>(fields_.size()), fields_.data()}; }

private:
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<PluginField> fields_;
};

// What the ONNX parser hands over: those attributes of the node that the creator declares.
std::unique_ptr<Fields> declared(const Case &wanted, IPluginCreatorV3One &creator) {
  const PluginFieldCollection *const names = creator.getFieldNames();
  std::set<std::string> known;
  for (int32_t i = 0; i < names->nbFields; ++i)
    require(known.insert(names->fields[i].name).second, "a field is declared twice");
  auto fields = std::make_unique<Fields>();
  for (const Field &attribute : wanted.attributes) {
    if (attribute.name == "plugin_version" || attribute.name == "plugin_namespace")
      continue;
    require(known.count(attribute.name) == 1,
            "attribute `" + attribute.name + "` of the node is not a field of the creator: its value is lost");
    fields->add(attribute);
  }
  return fields;
}

std::size_t bytes_of(PluginFieldType type) {
  switch (type) {
  case PluginFieldType::kFLOAT64:
  case PluginFieldType::kINT64:
    return 8;
  case PluginFieldType::kFLOAT32:
  case PluginFieldType::kINT32:
    return 4;
  case PluginFieldType::kINT16:
    return 2;
  default:
    return 1;
  }
}

// A copy of what the plugin wants to have kept.
std::vector<Field> serialised(IPluginV3OneRuntime &plugin) {
  const PluginFieldCollection *const given = plugin.getFieldsToSerialize();
  require(given != nullptr, "the plugin serialises nothing");
  std::vector<Field> found;
  for (int32_t i = 0; i < given->nbFields; ++i) {
    const PluginField &field = given->fields[i];
    require(field.length > 0 && field.data != nullptr, "a serialised field is empty");
    const auto *const data = static_cast<const char *>(field.data);
    found.push_back({field.name,
                     field.type,
                     field.length,
                     {data, data + bytes_of(field.type) * static_cast<std::size_t>(field.length)}});
  }
  return found;
}

bool same(const std::vector<Field> &a, const std::vector<Field> &b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const Field &x, const Field &y) {
           return x.name == y.name && x.type == y.type && x.length == y.length && x.data == y.data;
         });
}

std::unique_ptr<Fields> deserialised(const Case &wanted, const std::vector<Field> &engine) {
  auto fields = std::make_unique<Fields>();
  for (Field field : engine) {
    if (field.name == wanted.drop)
      continue;
    if (field.name == wanted.rename)
      field.name += "_2";
    if (field.name == "oneop_fingerprint" && !wanted.fingerprint.empty()) {
      field.data.assign(wanted.fingerprint.begin(), wanted.fingerprint.end());
      field.data.push_back('\0');
      field.length = static_cast<int32_t>(field.data.size());
    }
    fields->add(field);
  }
  return fields;
}

// ---- Building and running -------------------------------------------------------------------------------------------

template <class Interface> Interface &capability(IPluginV3 &plugin, PluginCapabilityType type) {
  IPluginCapability *const found = plugin.getCapabilityInterface(type);
  require(found != nullptr, "a capability is missing");
  return *static_cast<Interface *>(found);
}

// What the engine knows of a layer.
struct Layer {
  std::vector<const Tensor *> inputs; // as handed over; null where absent
  std::vector<DataType> output_types;
  std::vector<std::vector<const Expression *>> output_shapes;
  std::vector<int32_t> size_tensors;
  std::vector<int64_t> sizes; // of the inputs, one after another: what the expressions name
  std::size_t workspace = 0;
};

Layer layer_of(const Case &wanted) {
  Layer layer;
  for (const Tensor &tensor : wanted.inputs)
    if (!tensor.absent || wanted.keep_absent)
      layer.inputs.push_back(tensor.absent ? nullptr : &tensor);
  for (const Tensor *tensor : layer.inputs)
    if (tensor)
      layer.sizes.insert(layer.sizes.end(), tensor->sizes.begin(), tensor->sizes.end());
  return layer;
}

void infer(const Case &wanted, IPluginV3OneBuild &plugin, Layer &layer, Builder &builder) {
  const auto count = static_cast<int32_t>(layer.inputs.size());
  const int32_t n_outputs = plugin.getNbOutputs();
  std::vector<DataType> types;
  std::vector<DimsExprs> shapes;
  int64_t number = 0;
  for (const Tensor *tensor : layer.inputs) {
    types.push_back(tensor ? tensor->type : DataType::kFLOAT);
    DimsExprs shape{};
    shape.nbDims = tensor ? static_cast<int32_t>(tensor->sizes.size()) : -1;
    for (int32_t d = 0; d < shape.nbDims; ++d, ++number)
      shape.d[d] =
          wanted.dynamic ? builder.input(number) : builder.constant(layer.sizes[static_cast<std::size_t>(number)]);
    shapes.push_back(shape);
  }
  layer.output_types.resize(static_cast<std::size_t>(n_outputs));
  require(plugin.getOutputDataTypes(layer.output_types.data(), n_outputs, types.data(), count) == 0,
          "getOutputDataTypes failed");
  std::vector<DimsExprs> results(static_cast<std::size_t>(n_outputs));
  require(plugin.getOutputShapes(shapes.data(), count, nullptr, 0, results.data(), n_outputs, builder) == 0,
          "getOutputShapes failed");
  for (const DimsExprs &result : results) {
    auto &shape = layer.output_shapes.emplace_back();
    for (int32_t d = 0; d < result.nbDims; ++d)
      shape.push_back(static_cast<const Expression *>(result.d[d]));
  }
  layer.size_tensors = builder.size_tensors;
  for (const int32_t output : layer.size_tensors)
    require(layer.output_shapes.at(static_cast<std::size_t>(output)).empty() &&
                layer.output_types[static_cast<std::size_t>(output)] == DataType::kINT32,
            "a size tensor is not a scalar of INT32");
}

// For each tensor, the types that the plugin takes, the tensors before it having those of this layer.
std::vector<std::vector<int32_t>> formats(IPluginV3OneBuild &plugin, const Layer &layer) {
  std::vector<DynamicPluginTensorDesc> tensors(layer.inputs.size() + layer.output_types.size());
  std::vector<std::vector<int32_t>> accepted(tensors.size());
  const auto n_inputs = static_cast<int32_t>(layer.inputs.size()), n_outputs = plugin.getNbOutputs();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool absent = i < layer.inputs.size() && layer.inputs[i] == nullptr;
    PluginTensorDesc &asked = tensors[i].desc;
    for (int32_t type = 0; type < 12; ++type)
      for (int32_t format = 0; format < 13; ++format) {
        asked.type = static_cast<DataType>(type);
        asked.format = static_cast<TensorFormat>(format);
        if (!plugin.supportsFormatCombination(static_cast<int32_t>(i), tensors.data(), n_inputs, n_outputs))
          continue;
        require(format == 0 || absent, "the plugin takes a format that is not linear");
        if (format == 0)
          accepted[i].push_back(type);
      }
    asked.format = TensorFormat::kLINEAR;
    asked.type = i >= layer.inputs.size() ? layer.output_types[i - layer.inputs.size()]
                 : absent                 ? DataType::kFLOAT
                                          : layer.inputs[i]->type;
    require(plugin.supportsFormatCombination(static_cast<int32_t>(i), tensors.data(), n_inputs, n_outputs),
            "the plugin does not support the layer's types: tensor " + std::to_string(i));
  }
  return accepted;
}

std::vector<std::vector<int64_t>> output_sizes(const Layer &layer) {
  std::vector<std::vector<int64_t>> found;
  for (const auto &shape : layer.output_shapes) {
    auto &sizes = found.emplace_back();
    for (const Expression *expression : shape)
      sizes.push_back(expression->compute(layer.sizes));
  }
  return found;
}

bool depends_on_data(const std::vector<const Expression *> &shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Expression *item) { return item->isSizeTensor(); });
}

PluginTensorDesc absent_description() {
  PluginTensorDesc found{};
  found.dims.nbDims = -1;
  return found;
}

std::vector<PluginTensorDesc> input_descriptions(const Layer &layer) {
  std::vector<PluginTensorDesc> found;
  for (const Tensor *tensor : layer.inputs)
    found.push_back(tensor ? description_of(tensor->sizes, tensor->type) : absent_description());
  return found;
}

std::vector<PluginTensorDesc> output_descriptions(const Layer &layer) {
  const auto sizes = output_sizes(layer);
  std::vector<PluginTensorDesc> found;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    found.push_back(description_of(sizes[i], layer.output_types[i]));
    for (std::size_t d = 0; d < sizes[i].size(); ++d)
      if (layer.output_shapes[i][d]->isSizeTensor())
        found.back().dims.d[d] = -1;
  }
  return found;
}

void configure(const Case &wanted, IPluginV3OneBuild &plugin, Layer &layer) {
  const auto widened = [&](const std::vector<PluginTensorDesc> &tensors) {
    std::vector<DynamicPluginTensorDesc> found;
    for (const PluginTensorDesc &tensor : tensors) {
      DynamicPluginTensorDesc item{tensor, tensor.dims, tensor.dims, tensor.dims};
      for (int32_t d = 0; wanted.dynamic && d < tensor.dims.nbDims; ++d)
        item.desc.dims.d[d] = -1;
      found.push_back(item);
    }
    return found;
  };
  const auto inputs = widened(input_descriptions(layer)), outputs = widened(output_descriptions(layer));
  const auto n_inputs = static_cast<int32_t>(inputs.size()), n_outputs = static_cast<int32_t>(outputs.size());
  require(plugin.configurePlugin(inputs.data(), n_inputs, outputs.data(), n_outputs) == 0, "configurePlugin failed");
  layer.workspace = plugin.getWorkspaceSize(inputs.data(), n_inputs, outputs.data(), n_outputs);
  require(plugin.getNbTactics() == 0, "the plugin has tactics");
}

struct Result {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<std::vector<char>> data;
};

Result run(IPluginV3 &attached, const Layer &layer, int unused) {
  auto &plugin = capability<IPluginV3OneRuntime>(attached, PluginCapabilityType::kRUNTIME);
  const auto inputs = input_descriptions(layer), outputs = output_descriptions(layer);
  require(plugin.onShapeChange(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                               static_cast<int32_t>(outputs.size())) == 0,
          "onShapeChange failed");
  std::vector<std::vector<char>> copies;
  std::vector<const void *> given;
  for (const Tensor *tensor : layer.inputs) {
    copies.push_back(tensor ? tensor->data : std::vector<char>{});
    given.push_back(copies.back().data());
  }
  for (std::size_t i = 0; i < copies.size(); ++i)
    given[i] = layer.inputs[i] ? copies[i].data() : nullptr;
  Result result;
  result.sizes = output_sizes(layer);
  std::vector<void *> memory;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    result.data.emplace_back(elements_of(result.sizes[i]) * bytes_of(layer.output_types[i]), '\x5a');
  for (auto &block : result.data)
    memory.push_back(block.data());
  if (unused >= 0)
    memory.at(static_cast<std::size_t>(unused)) = nullptr;
  std::vector<char> workspace(layer.workspace);
  require(plugin.enqueue(inputs.data(), outputs.data(), given.data(), memory.data(), workspace.data(), nullptr) == 0,
          "enqueue failed");
  for (std::size_t i = 0; i < copies.size(); ++i)
    require(layer.inputs[i] == nullptr || copies[i] == layer.inputs[i]->data, "the plugin wrote to an input");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!depends_on_data(layer.output_shapes[i]))
      continue;
    for (std::size_t d = 0; d < result.sizes[i].size(); ++d)
      if (layer.output_shapes[i][d]->isSizeTensor()) {
        int32_t size = 0;
        const auto tensor = static_cast<std::size_t>(layer.output_shapes[i][d]->value);
        std::memcpy(&size, result.data[tensor].data(), sizeof size);
        result.sizes[i][d] = size;
      }
    result.data[i].resize(elements_of(result.sizes[i]) * bytes_of(layer.output_types[i]));
  }
  return result;
}

std::unique_ptr<IPluginV3> attached(IPluginV3 &plugin, IPluginResourceContext &context) {
  auto &runtime = capability<IPluginV3OneRuntime>(plugin, PluginCapabilityType::kRUNTIME);
  std::unique_ptr<IPluginV3> found(runtime.attachToContext(&context));
  require(found != nullptr, "attachToContext gave nothing");
  return found;
}

void check_names(IPluginV3 &plugin, const Case &wanted) {
  auto &core = capability<IPluginV3OneCore>(plugin, PluginCapabilityType::kCORE);
  require(core.getPluginName() == wanted.name && core.getPluginVersion() == wanted.version &&
              core.getPluginNamespace() == wanted.name_space,
          "the plugin's name, version or namespace is not that of its creator");
}

void write(const Case &wanted, const Layer &layer, const Result &result, std::ostream &out) {
  out << ", \"outputs\": [";
  const std::size_t count = result.data.size() - layer.size_tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string path = wanted.folder + "/output_" + std::to_string(i);
    std::ofstream(path, std::ios::binary)
        .write(result.data[i].data(), static_cast<std::streamsize>(result.data[i].size()));
    out << (i ? ", " : "") << "{\"type\": " << static_cast<int32_t>(layer.output_types[i])
        << ", \"sizes\": " << json(result.sizes[i]) << ", \"file\": " << json(path) << "}";
  }
  out << "]";
}

void drive(const Case &wanted, Finder &finder, std::ostream &out) {
  const Registry registry(wanted.library, &finder);
  out << ", \"creators\": " << json(registry.names);
  IPluginCreatorV3One &creator = *registry.find(wanted);
  std::unique_ptr<Fields> fields = declared(wanted, creator);
  const PluginFieldCollection collection = fields->collection();
  std::unique_ptr<IPluginV3> made(creator.createPlugin(wanted.layer.c_str(), &collection, TensorRTPhase::kBUILD));
  require(made != nullptr, "Could not create the plugin.");
  fields.reset();

  std::unique_ptr<IPluginV3> plugin(made->clone());
  require(plugin != nullptr, "clone gave nothing");
  made.reset();
  check_names(*plugin, wanted);
  auto &build = capability<IPluginV3OneBuild>(*plugin, PluginCapabilityType::kBUILD);
  out << ", \"metadata\": " << json(std::string(build.getMetadataString()));
  Builder builder;
  Layer layer = layer_of(wanted);
  infer(wanted, build, layer, builder);
  const auto sizes = output_sizes(layer);
  out << ", \"size_tensors\": " << json(layer.size_tensors) << ", \"shapes\": " << json(sizes);
  const auto accepted = formats(build, layer);
  out << ", \"formats\": " << json(accepted);
  configure(wanted, build, layer);
  out << ", \"workspace\": " << json(layer.workspace);
  if (wanted.stop == "configure")
    return;

  Allocator allocator;
  Resources resources(wanted.allocator ? &allocator : nullptr);
  const Result timed = run(*attached(*plugin, resources), layer, wanted.unused);
  const std::vector<Field> engine =
      serialised(capability<IPluginV3OneRuntime>(*plugin, PluginCapabilityType::kRUNTIME));
  std::vector<std::string> names;
  for (const Field &field : engine)
    names.push_back(field.name);
  out << ", \"serialised\": " << json(names);
  plugin.reset();

  fields = deserialised(wanted, engine);
  const PluginFieldCollection kept = fields->collection();
  std::unique_ptr<IPluginV3> loaded(creator.createPlugin(wanted.layer.c_str(), &kept, TensorRTPhase::kRUNTIME));
  require(loaded != nullptr, "Could not deserialize the plugin.");
  fields.reset();
  check_names(*loaded, wanted);
  require(same(serialised(capability<IPluginV3OneRuntime>(*loaded, PluginCapabilityType::kRUNTIME)), engine),
          "the plugin serialises something else after it was deserialised");
  const auto first = attached(*loaded, resources), second = attached(*loaded, resources);
  loaded.reset();
  const Result result = run(*first, layer, wanted.unused), again = run(*second, layer, wanted.unused),
               once_more = run(*first, layer, wanted.unused);
  for (const Result *other : {&again, &once_more, &timed})
    require(other->data == result.data && other->sizes == result.sizes, "another run gave other results");
  require(allocator.taken == allocator.given_back, "scratch memory was not given back");
  out << ", \"allocations\": " << json(allocator.taken);
  write(wanted, layer, result, out);
}

} // namespace host

int main(int count, char **arguments) {
  host::Finder finder;
  std::ostringstream out;
  std::string error;
  try {
    host::require(count == 2, "call it with the file of a case");
    std::ifstream file(arguments[1]);
    host::drive(host::read_case(file), finder, out);
  } catch (const std::exception &failure) {
    error = failure.what();
  }
  std::cout << "{\"error\": " << host::json(error) << ", \"log\": " << host::json(finder.logger.lines) << out.str()
            << "}\n";
  return 0;
}
