/* oneop_tensorrt.h: what the plugins of every operator share. C++17, TensorRT 10.0 or newer.
 *
 * The file that oneop generates beside this one describes each operator: its inputs, outputs and attributes, and a
 * function that computes the outputs' shapes. `Creator` and `Plugin` below make of that what TensorRT asks for. The
 * kernels, and what checks sizes, are those of the kernel library (oneop.h) that this is compiled into.
 *
 * Size tensors stand behind the operator's outputs: one for each `?k`. Kernels take scratch memory from the workspace
 * first, then from the execution context's allocator, in the order of the stream.
 */
#ifndef ONEOP_TENSORRT_H
#define ONEOP_TENSORRT_H

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include <NvInferRuntime.h>
#include <NvInferVersion.h>

#include "oneop.h"

#if NV_TENSORRT_MAJOR < 10
#error "oneop's plugins need the headers of TensorRT 10.0 or newer: IPluginV3 begins there"
#endif

namespace oneop::tensorrt {

// ---- What an operator is ---------------------------------------------------------------------------------------------

enum class Arity { required, optional, variadic };

struct Input {
  const char *name;
  Arity arity;
  int32_t element; // its dtype variable, as in the kernels' table
};

struct Output {
  const char *name;
  int32_t element;
  nvinfer1::DataType type; // where no input has its dtype variable
};

/* The value of an attribute; nothing for None. */
using Value =
    std::variant<std::monostate, double, int64_t, bool, std::string, std::vector<double>, std::vector<int64_t>>;

struct Attribute {
  const char *name;
  oneop_attribute_kind kind;
  bool required; // it has to be given; otherwise `value` stands for it
  Value value;
};

/* An element type of the kernels, and TensorRT's name for it. */
struct Type {
  oneop_dtype dtype;
  nvinfer1::DataType type;
};

/* Those that both sides have; the generated file holds the table. */
extern const std::vector<Type> types;

/* A size that only the kernel knows, and one dimension that has it: of an output, counted from the end. */
struct Unknown {
  const char *name;
  int32_t output;
  int32_t from_end;
};

class Shapes;

struct Operator {
  const char *name;        // "demo::scaled_linear"
  const char *plugin;      // "ScaledLinear"
  const char *version;     // plugin_version
  const char *name_space;  // plugin_namespace
  const char *fingerprint; // of the definition
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Unknown> unknowns;
  std::vector<Attribute> attributes;
  void (*shapes)(Shapes &);
  std::size_t workspace; // bytes
};

// ---- Shapes of outputs -----------------------------------------------------------------------------------------------

/* A size while an engine is built: a number, or an expression of TensorRT's. Arithmetic is Python's: // and % round
 * towards minus infinity. What is known is computed here; it throws std::runtime_error where it has no result. */
class Size {
public:
  Size(int64_t value) : value_(value) {} // NOLINT: literals stand beside sizes
  Size(nvinfer1::IExprBuilder &builder, const nvinfer1::IDimensionExpr &expression);

  bool is_known() const { return expression_ == nullptr; }
  int64_t value() const { return value_; }
  /* As TensorRT has it. */
  const nvinfer1::IDimensionExpr *in(nvinfer1::IExprBuilder &builder) const;

private:
  friend Size combine(nvinfer1::DimensionOperation operation, const Size &a, const Size &b);
  int64_t value_ = ONEOP_UNKNOWN;
  nvinfer1::IExprBuilder *builder_ = nullptr;
  const nvinfer1::IDimensionExpr *expression_ = nullptr;
};

Size operator+(const Size &a, const Size &b);
Size operator-(const Size &a, const Size &b);
Size operator*(const Size &a, const Size &b);
Size floor_divide(const Size &a, const Size &b);
Size modulo(const Size &a, const Size &b);
Size min(const Size &a, const Size &b);
Size max(const Size &a, const Size &b);

/* The sizes of each tensor of each input. */
using InputSizes = std::vector<std::vector<std::vector<Size>>>;

/* What an operator's `shapes` reads, and what it fills in. Without a builder all sizes are numbers. */
class Shapes {
public:
  Shapes(const Operator &op, const std::vector<Value> &attributes, const InputSizes &inputs,
         nvinfer1::IExprBuilder *builder)
      : outputs(op.outputs.size()), capacities(op.unknowns.size(), 0), op_(op), attributes_(attributes),
        inputs_(inputs), builder_(builder) {}

  /* A size of an input that is always there, counted from the end: the last one is 1. */
  Size input(std::size_t number, std::size_t from_end) const;
  Size attribute(std::size_t number) const;
  /* The elements of the largest input. */
  Size most_elements() const;
  /* A size that only the kernel knows; `most` is what memory is there for. */
  Size unknown(std::size_t number, const Size &most);

  /* The leading group of an input, which has `behind` dimensions after it. */
  std::vector<Size> leading(std::size_t number, std::size_t behind) const;

  void output(std::size_t number, std::initializer_list<Size> sizes);
  void output(std::size_t number, std::vector<Size> leading, std::initializer_list<Size> sizes);

  std::vector<std::vector<Size>> outputs;
  std::vector<int64_t> capacities; // of the unknown sizes

private:
  const Operator &op_;
  const std::vector<Value> &attributes_;
  const InputSizes &inputs_;
  nvinfer1::IExprBuilder *builder_;
};

// ---- Plugins ---------------------------------------------------------------------------------------------------------

/* Which of the tensors that TensorRT hands over belong to which input. */
using Places = std::vector<std::vector<int32_t>>;

class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
public:
  /* `counts` says how many tensors each input has; it is empty where nobody said. */
  Plugin(const Operator &op, std::string layer, std::vector<Value> attributes, std::vector<int32_t> counts,
         int32_t n_tensors);
  Plugin(const Plugin &other);
  Plugin &operator=(const Plugin &) = delete;

  nvinfer1::IPluginCapability *getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
  nvinfer1::IPluginV3 *clone() noexcept override;

  const char *getPluginName() const noexcept override { return op_.plugin; }
  const char *getPluginVersion() const noexcept override { return op_.version; }
  const char *getPluginNamespace() const noexcept override { return op_.name_space; }

  int32_t getNbOutputs() const noexcept override;
  int32_t getOutputDataTypes(nvinfer1::DataType *outputs, int32_t n_outputs, const nvinfer1::DataType *inputs,
                             int32_t n_inputs) const noexcept override;
  int32_t getOutputShapes(const nvinfer1::DimsExprs *inputs, int32_t n_inputs, const nvinfer1::DimsExprs *shape_inputs,
                          int32_t n_shape_inputs, nvinfer1::DimsExprs *outputs, int32_t n_outputs,
                          nvinfer1::IExprBuilder &builder) noexcept override;
  bool supportsFormatCombination(int32_t position, const nvinfer1::DynamicPluginTensorDesc *tensors, int32_t n_inputs,
                                 int32_t n_outputs) noexcept override;
  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc *inputs, int32_t n_inputs,
                          const nvinfer1::DynamicPluginTensorDesc *outputs, int32_t n_outputs) noexcept override;
  std::size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc *inputs, int32_t n_inputs,
                               const nvinfer1::DynamicPluginTensorDesc *outputs,
                               int32_t n_outputs) const noexcept override;
  /* Timings are kept for layers with the same values. */
  const char *getTimingCacheID() noexcept override { return getMetadataString(); }
  const char *getMetadataString() noexcept override { return metadata_.c_str(); }

  int32_t onShapeChange(const nvinfer1::PluginTensorDesc *inputs, int32_t n_inputs,
                        const nvinfer1::PluginTensorDesc *outputs, int32_t n_outputs) noexcept override;
  int32_t enqueue(const nvinfer1::PluginTensorDesc *input_descriptions,
                  const nvinfer1::PluginTensorDesc *output_descriptions, const void *const *inputs,
                  void *const *outputs, void *workspace, cudaStream_t stream) noexcept override;
  nvinfer1::IPluginV3 *attachToContext(nvinfer1::IPluginResourceContext *context) noexcept override;
  const nvinfer1::PluginFieldCollection *getFieldsToSerialize() noexcept override;

private:
  Places place(int32_t n_inputs) const;
  void check(const nvinfer1::PluginTensorDesc *inputs, int32_t n_inputs, const nvinfer1::PluginTensorDesc *outputs,
             int32_t n_outputs) const;

  const Operator &op_;
  const oneop_operator &entry_;
  std::string layer_;
  std::vector<Value> attributes_;
  std::vector<oneop_attribute> values_; // the same, as kernels read them
  std::vector<int32_t> counts_;
  int32_t n_tensors_; // that TensorRT hands over; -1 until it says so
  nvinfer1::IGpuAllocator *allocator_ = nullptr;
  std::string metadata_, given_, counts_text_; // what the fields below point to
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

class Creator final : public nvinfer1::IPluginCreatorV3One {
public:
  explicit Creator(const Operator &op);

  const char *getPluginName() const noexcept override { return op_.plugin; }
  const char *getPluginVersion() const noexcept override { return op_.version; }
  const char *getPluginNamespace() const noexcept override { return op_.name_space; }
  const nvinfer1::PluginFieldCollection *getFieldNames() noexcept override { return &collection_; }
  nvinfer1::IPluginV3 *createPlugin(const char *name, const nvinfer1::PluginFieldCollection *fields,
                                    nvinfer1::TensorRTPhase phase) noexcept override;

private:
  const Operator &op_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

/* Where messages go; without one, to the standard error output. */
void set_logger_finder(nvinfer1::ILoggerFinder *finder) noexcept;

} // namespace oneop::tensorrt

#endif // ONEOP_TENSORRT_H
