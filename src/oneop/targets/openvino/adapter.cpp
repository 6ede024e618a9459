// adapter.cpp: every operator of the library as a node of OpenVINO. C++17.
//
// There is one class. OpenVINO identifies nodes by the name and version that get_type_info() returns, which is virtual,
// so each node answers with those of its operator. The name is "namespace::OnnxName": the CPU plugin takes nodes for its
// own by their name alone, and no operator of OpenVINO has such a name.
//
// A node's dtypes are those of the model that it was read from. The CPU plugin computes some dtypes in others (float64
// and float16 in float32, all wide integers in int32, bool in uint8) and converts what it hands to a node. The node
// converts it back, so that its kernel always computes in the dtypes of the model. Results it gives as the plugin
// computes them; a node of OpenVINO's behind it makes them the model's, and costs nothing in the plugin.
#include "adapter.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include <openvino/core/op_extension.hpp>
#include <openvino/frontend/onnx/extension/conversion.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>
#include <openvino/op/not_equal.hpp>
#include <openvino/op/op.hpp>

extern "C" const oneop_library *oneop_library_v1(void);

namespace oneop_openvino {
namespace {

// With `?` for each byte that is not part of a character in UTF-8: Python refuses to decode such messages.
std::string decodable(const std::string &text) {
  std::string out = text;
  for (size_t i = 0; i < out.size();) {
    const auto first = static_cast<unsigned char>(out[i]);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xc2 && first < 0xe0 ? 2
                          : first >= 0xe0 && first < 0xf0 ? 3
                          : first >= 0xf0 && first < 0xf5 ? 4
                                                          : 0;
    bool whole = length > 0 && out.size() - i >= length;
    for (size_t j = 1; whole && j < length; ++j)
      whole = (static_cast<unsigned char>(out[i + j]) & 0xc0u) == 0x80u;
    if (whole && length > 2) { // neither a longer spelling than needed, nor a surrogate, nor beyond U+10FFFF
      const auto second = static_cast<unsigned char>(out[i + 1]);
      whole = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second >= 0xa0) &&
              !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second >= 0x90);
    }
    if (!whole)
      out[i] = '?';
    i += whole ? length : 1;
  }
  return out;
}

// What OpenVINO's callers get. The message is ours alone: no file and line of this source.
class Failure : public ov::Exception {
public:
  explicit Failure(const std::string &message) : ov::Exception(decodable(message)) {}
};

struct Kind {
  const OperatorRow *row;
  const oneop_operator *entry;
  ov::DiscreteTypeInfo type_info;
};

using Types = std::vector<ov::element::Type>; // dynamic: not known yet

std::string quoted(const std::string &name) { return "`" + name + "`"; }

const TypeRow &type_row(const ElementRow &element, int index) { return types[element.types[index]]; }

ov::element::Type type_of(const TypeRow &row) { return ov::element::Type(std::string(row.openvino)); }

bool is_wide(const ov::element::Type &type) { return type == ov::element::i64 || type == ov::element::u64; }

// In what the CPU plugin computes values of a type. It does not convert what a node of ours gives, and takes nothing else
// into most of its own nodes; but for 64-bit integers, which it converts where the first output has them.
ov::element::Type plugin_type(const ov::element::Type &type) {
  if (type == ov::element::f64 || type == ov::element::f16)
    return ov::element::f32;
  if (type == ov::element::boolean)
    return ov::element::u8;
  const bool is_integer =
      is_wide(type) || type == ov::element::i16 || type == ov::element::u16 || type == ov::element::u32;
  return is_integer ? ov::element::Type(ov::element::i32) : type;
}

bool is_known(const oneop_tensor &tensor) {
  return std::none_of(tensor.shape, tensor.shape + tensor.ndim, [](int64_t size) { return size == ONEOP_UNKNOWN; });
}

// As Python writes a tuple.
std::string shape_text(const int64_t *sizes, int32_t ndim) {
  std::string text = "(";
  for (int32_t d = 0; d < ndim; ++d)
    text += (d > 0 ? ", " : "") + std::to_string(sizes[d]);
  return text + (ndim == 1 ? ",)" : ")");
}

// ---- One call -----------------------------------------------------------------------------------------------------

// The tensors of a call, described for oneop's table, and what a kernel may ask for meanwhile.
class Call : public oneop_context {
public:
  Call(const Kind &kind, const std::vector<int64_t> &counts, const oneop_attribute *attributes)
      : oneop_context{}, kind_(kind), arguments_(static_cast<size_t>(kind.row->n_inputs + kind.row->n_outputs)),
        dims_(static_cast<size_t>(kind.entry->n_dims) + 1), waiting_(static_cast<size_t>(kind.row->n_outputs)) {
    oneop_context::parallel_for = [](oneop_context *, int64_t begin, int64_t end, int64_t grain,
                                     void (*body)(void *, int64_t, int64_t),
                                     void *data) { oneop_openvino::parallel_for(begin, end, grain, body, data); };
    oneop_context::scratch = [](oneop_context *self, size_t bytes) { return static_cast<Call *>(self)->lend(bytes); };
    oneop_context::resize = [](oneop_context *self, int32_t output, const int64_t *sizes, int32_t ndim) {
      return static_cast<Call *>(self)->resize_output(output, sizes, ndim);
    };
    oneop_context::fail = [](oneop_context *self, const char *message) { static_cast<Call *>(self)->note(message); };
    const OperatorRow &row = *kind.row;
    size_t total = 0;
    for (int i = 0; i < row.n_inputs; ++i)
      total += static_cast<size_t>(counts[static_cast<size_t>(i)]);
    n_inputs_ = total;
    for (int i = 0; i < row.n_outputs; ++i)
      total += static_cast<size_t>(count_of_output(row, counts, i));
    tensors_.resize(total);
    sizes_.resize(total * ONEOP_MAX_NDIM);
    for (size_t i = 0; i < total; ++i) {
      tensors_[i].device = {1, 0};
      tensors_[i].shape = &sizes_[i * ONEOP_MAX_NDIM];
    }
    oneop_tensor *next = tensors_.data();
    for (int i = 0; i < row.n_inputs + row.n_outputs; ++i) {
      oneop_argument &argument = arguments_[static_cast<size_t>(i)];
      argument.count =
          i < row.n_inputs ? counts[static_cast<size_t>(i)] : count_of_output(row, counts, i - row.n_inputs);
      argument.tensors = next;
      next += argument.count;
    }
    call_ = {arguments_.data(), arguments_.data() + row.n_inputs, attributes, dims_.data(), this};
  }

  ~Call() {
    for (void *block : blocks_)
      std::free(block);
  }
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  static int64_t count_of_output(const OperatorRow &row, const std::vector<int64_t> &counts, int output) {
    const int mirrored = row.outputs[output].mirrors;
    return mirrored >= 0 && row.inputs[mirrored].arity == Arity::variadic ? counts[static_cast<size_t>(mirrored)] : 1;
  }

  size_t n_inputs() const { return n_inputs_; }
  size_t n_outputs() const { return tensors_.size() - n_inputs_; }
  oneop_tensor &input(size_t index) { return tensors_[index]; }
  oneop_tensor &output(size_t index) { return tensors_[n_inputs_ + index]; }

  void set_sizes(oneop_tensor &tensor, const ov::Shape &shape) {
    check_rank(shape.size());
    tensor.ndim = static_cast<int32_t>(shape.size());
    std::transform(shape.begin(), shape.end(), tensor.shape, [](size_t size) { return static_cast<int64_t>(size); });
  }

  void check_rank(size_t ndim) const {
    if (ndim > ONEOP_MAX_NDIM)
      throw Failure(std::string(kind_.row->name) + ": an input has " + std::to_string(ndim) + " dimensions; at most " +
                    std::to_string(ONEOP_MAX_NDIM) + " are supported.");
  }

  void compute_shapes() { finish(kind_.entry->shapes(&call_)); }

  // `allocate` gives output tensor number `index` memory, for the sizes that it has by then.
  void run(oneop_function kernel, std::function<void *(size_t index)> allocate) {
    allocate_ = std::move(allocate);
    for (int i = 0; i < kind_.row->n_outputs; ++i)
      for (int64_t j = 0; j < call_.outputs[i].count; ++j) {
        oneop_tensor &tensor = call_.outputs[i].tensors[j];
        if (is_known(tensor))
          tensor.data = allocate_(static_cast<size_t>(&tensor - &output(0)));
        else
          waiting_[static_cast<size_t>(i)] = true;
      }
    finish(kernel(&call_));
    for (int i = 0; i < kind_.row->n_outputs; ++i)
      if (waiting_[static_cast<size_t>(i)])
        throw Failure(std::string(kind_.row->name) + ": the kernel returned without a size for output " +
                      quoted(kind_.row->outputs[i].name) + ". Call `resize` for it.");
  }

private:
  void finish(int code) {
    if (code == 0 && !message_)
      return;
    const std::string name = kind_.row->name, message = message_.value_or("failed and gave no message");
    throw Failure(message.compare(0, name.size(), name) == 0 ? message : name + ": " + message);
  }

  void note(const char *message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!message_)
      message_ = message;
  }

  void *lend(size_t bytes) {
    constexpr size_t alignment = 64;
    void *block = bytes <= SIZE_MAX - alignment
                      ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                      : nullptr;
    if (block == nullptr) {
      note("out of memory (scratch)");
      return nullptr;
    }
    blocks_.push_back(block);
    return block;
  }

  oneop_tensor *resize_output(int32_t number, const int64_t *sizes, int32_t ndim) {
    if (number < 0 || number >= kind_.row->n_outputs || call_.outputs[number].count != 1) {
      note("the kernel resized an output that does not exist. Count outputs from 0, in the definition's order.");
      return nullptr;
    }
    oneop_tensor &tensor = *call_.outputs[number].tensors;
    bool fits = ndim == tensor.ndim;
    for (int32_t d = 0; fits && d < ndim; ++d)
      fits = sizes[d] >= 0 && (tensor.shape[d] == sizes[d] || tensor.shape[d] == ONEOP_UNKNOWN);
    if (!fits) {
      refuse_sizes(number, tensor, sizes, ndim);
      return nullptr;
    }
    if (!waiting_[static_cast<size_t>(number)])
      return &tensor;
    std::copy(sizes, sizes + ndim, tensor.shape);
    try {
      tensor.data = allocate_(static_cast<size_t>(&tensor - &output(0)));
    } catch (const std::exception &error) { // it must not pass through a kernel in C
      note(error.what());
      return nullptr;
    }
    waiting_[static_cast<size_t>(number)] = false;
    return &tensor;
  }

  // After the first resize, the sizes are known: another one says so.
  void refuse_sizes(int32_t number, const oneop_tensor &tensor, const int64_t *sizes, int32_t ndim) {
    const std::string what = "the kernel resized output " + quoted(kind_.row->outputs[number].name) + " to ";
    const std::string given = shape_text(sizes, ndim);
    if (is_known(tensor))
      note((what + shape_text(tensor.shape, tensor.ndim) + " and then to " + given + ". Resize an output once.")
               .c_str());
    else
      note((what + given + ", which does not fit its definition. Resize it to sizes that fit.").c_str());
  }

  const Kind &kind_;
  std::vector<oneop_argument> arguments_;
  std::vector<oneop_tensor> tensors_; // of inputs, then of outputs
  std::vector<int64_t> sizes_, dims_;
  std::vector<char> waiting_; // one an output: it has no memory before the kernel calls resize
  std::vector<void *> blocks_;
  std::function<void *(size_t)> allocate_;
  std::optional<std::string> message_;
  std::mutex mutex_;
  size_t n_inputs_ = 0;
  oneop_call call_{};
};

// ---- The node -----------------------------------------------------------------------------------------------------

class Operation final : public ov::op::Op {
public:
  explicit Operation(const Kind &kind) : kind_(&kind), dtypes_(static_cast<size_t>(kind.row->n_elements)) {
    for (int i = 0; i < kind.row->n_attributes; ++i) {
      const AttributeRow &attribute = kind.row->attributes[i];
      values_.push_back(attribute.initial == nullptr ? Value(Unset{}) : read_value(attribute, attribute.initial));
    }
  }

  // What a model says of a node. `counts`: how many tensors each input has.
  void describe(const std::string &node, std::vector<int64_t> counts, std::vector<Value> values) {
    set_friendly_name(node);
    counts_ = std::move(counts);
    values_ = std::move(values);
  }

  const ov::DiscreteTypeInfo &get_type_info() const override { return kind_->type_info; }

  std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector &inputs) const override {
    auto clone = std::make_shared<Operation>(*kind_);
    clone->counts_ = counts_;
    clone->values_ = values_;
    clone->dtypes_ = dtypes_;
    clone->kernel_ = kernel_;
    clone->set_arguments(inputs);
    clone->constructor_validate_and_infer_types();
    return clone;
  }

  // OpenVINO reads and writes nodes through this: a text that it has changed was in the file.
  bool visit_attributes(ov::AttributeVisitor &visitor) override {
    const std::string own = kind_->entry->fingerprint;
    if (const auto saved = visit(visitor, "oneop.fingerprint", own))
      throw Failure(std::string(name()) + ": the model was saved with another definition (fingerprint " + *saved +
                    ") than that of this library (fingerprint " + own +
                    "). Build the library from that definition, or convert the model again.");
    if (const auto saved = visit(visitor, "oneop.inputs", write_integers(counts_)))
      if (!read_integers(*saved, counts_))
        throw Failure(damaged("oneop.inputs", *saved));
    visit_dtypes(visitor);
    for (size_t i = 0; i < values_.size(); ++i) {
      const AttributeRow &attribute = kind_->row->attributes[i];
      if (const auto saved = visit(visitor, saved_name(attribute.name), write_value(values_[i]))) {
        values_[i] = read_value(attribute, *saved);
        if (!is_set(values_[i]))
          throw Failure(damaged(attribute.name, *saved) + " It is " + kind_text(attribute.kind) + ", as JSON.");
      }
    }
    views_.reset();
    return true;
  }

  void validate_and_infer_types() override {
    count_inputs();
    require_attributes();
    settle_dtypes();
    infer_shapes();
  }

  bool has_evaluate() const override { return true; }

  using ov::op::Op::evaluate;
  using ov::op::Op::evaluate_lower;
  using ov::op::Op::evaluate_upper;

  bool evaluate(ov::TensorVector &outputs, const ov::TensorVector &inputs) const override {
    if (kernel_ == nullptr)
      throw Failure(std::string(name()) + ": node " + quoted(get_friendly_name()) +
                    " has inputs whose types are not known. Give the model's inputs types.");
    Call call(*kind_, counts_, views_->data());
    if (inputs.size() != call.n_inputs() || outputs.size() != call.n_outputs())
      throw Failure(std::string(name()) + ": OpenVINO calls it with " + std::to_string(inputs.size()) + " inputs and " +
                    std::to_string(outputs.size()) + " outputs; it was made for others. Read the model again.");
    ov::TensorVector given; // keeps converted inputs
    given.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TypeRow &row = dtype_of(input_row(i));
      given.push_back(as_dtype(inputs[i], type_of(row)));
      oneop_tensor &tensor = call.input(i);
      tensor.dtype = row.dtype;
      tensor.data = given.back().data();
      call.set_sizes(tensor, given.back().get_shape());
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      call.output(i).dtype = dtype_of(output_row(i)).dtype;
    call.compute_shapes();
    ov::TensorVector computed(outputs.size()); // of outputs that are converted afterwards
    call.run(kernel_, [&](size_t index) {
      const oneop_tensor &tensor = call.output(index);
      const ov::Shape shape(tensor.shape, tensor.shape + tensor.ndim);
      const ov::element::Type type = type_of(dtype_of(output_row(index)));
      if (outputs[index].get_element_type() != type)
        return (computed[index] = ov::Tensor(type, shape)).data();
      if (outputs[index].get_shape() != shape)
        outputs[index].set_shape(shape);
      return outputs[index].data();
    });
    for (size_t i = 0; i < outputs.size(); ++i)
      if (computed[i]) {
        require_narrow(i, computed[i], outputs[i].get_element_type());
        convert(computed[i], outputs[i]);
      }
    return true;
  }

  // The outputs in the dtypes of the definition.
  ov::OutputVector model_outputs() {
    ov::OutputVector all = outputs();
    for (size_t i = 0; i < all.size() && kernel_ != nullptr; ++i) {
      const ov::element::Type type = type_of(dtype_of(output_row(i)));
      if (all[i].get_element_type() == type)
        continue;
      // The plugin makes of a Convert to boolean something that reads the first output, whichever was meant.
      if (type == ov::element::boolean)
        all[i] = std::make_shared<ov::op::v1::NotEqual>(all[i], zero(all[i].get_element_type()))->output(0);
      else
        all[i] = std::make_shared<ov::op::v0::Convert>(all[i], type)->output(0);
    }
    return all;
  }

private:
  const char *name() const { return kind_->row->name; }

  std::string damaged(const char *attribute, const std::string &text) const {
    return std::string(name()) + ": attribute " + quoted(attribute) + " is " + text + " in the model.";
  }

  // OpenVINO takes a node with `element_type`, `size` and `offset` for a constant, and looks for its weights.
  static const char *saved_name(const char *attribute) {
    return std::strcmp(attribute, "element_type") == 0 ? "oneop.element_type" : attribute;
  }

  static std::optional<std::string> visit(ov::AttributeVisitor &visitor, const char *name, const std::string &text) {
    std::string visited = text;
    visitor.on_attribute(name, visited);
    return visited == text ? std::nullopt : std::optional<std::string>(visited);
  }

  void visit_dtypes(ov::AttributeVisitor &visitor) {
    std::vector<std::string> names;
    if (kernel_ != nullptr)
      for (const TypeRow *dtype : dtypes_)
        names.push_back(dtype == nullptr ? "" : dtype->name);
    const auto saved = visit(visitor, "oneop.dtypes", write_strings(names));
    if (!saved)
      return;
    if (!read_strings(*saved, names) || names.size() != dtypes_.size())
      throw Failure(damaged("oneop.dtypes", *saved));
    for (size_t i = 0; i < names.size(); ++i) {
      dtypes_[i] = nullptr;
      const ElementRow &element = kind_->row->elements[i];
      for (int j = 0; j < element.n_types; ++j)
        if (names[i] == type_row(element, j).name)
          dtypes_[i] = &type_row(element, j);
      if (dtypes_[i] == nullptr && !names[i].empty())
        throw Failure(damaged("oneop.dtypes", *saved));
    }
    find_kernel();
  }

  // ---- Inputs

  // A node that something else than a model file made says nothing of absent inputs: they are the last.
  void count_inputs() {
    const OperatorRow &row = *kind_->row;
    const auto given = static_cast<int64_t>(get_input_size());
    if (counts_.empty()) {
      int64_t left = given;
      for (int i = 0; i < row.n_inputs; ++i) {
        counts_.push_back(row.inputs[i].arity == Arity::variadic ? left : std::min<int64_t>(left, 1));
        left -= counts_.back();
      }
    }
    int64_t total = 0;
    for (int i = 0; i < row.n_inputs; ++i) {
      const int64_t count = static_cast<size_t>(i) < counts_.size() ? counts_[static_cast<size_t>(i)] : 0;
      const Arity arity = row.inputs[i].arity;
      if (count < (arity == Arity::optional ? 0 : 1))
        throw Failure(std::string(name()) + ": node " + quoted(get_friendly_name()) + " has no input " +
                      quoted(row.inputs[i].name) +
                      (arity == Arity::variadic ? ", which takes one tensor or more." : ", which is not optional.") +
                      " Connect it.");
      total += count;
    }
    if (counts_.size() != static_cast<size_t>(row.n_inputs) || total != given)
      throw Failure(std::string(name()) + ": node " + quoted(get_friendly_name()) + " has " + std::to_string(given) +
                    " inputs, and its `oneop.inputs` says " + write_integers(counts_) +
                    ". Read the model again from its source.");
  }

  const TensorRow &input_row(size_t index) const {
    int i = 0;
    for (auto left = static_cast<int64_t>(index); left >= counts_[static_cast<size_t>(i)]; ++i)
      left -= counts_[static_cast<size_t>(i)];
    return kind_->row->inputs[i];
  }

  const TensorRow &output_row(size_t index) const {
    int i = 0;
    for (auto left = static_cast<int64_t>(index); left >= Call::count_of_output(*kind_->row, counts_, i); ++i)
      left -= Call::count_of_output(*kind_->row, counts_, i);
    return kind_->row->outputs[i];
  }

  void require_attributes() {
    for (size_t i = 0; i < values_.size(); ++i) {
      const AttributeRow &attribute = kind_->row->attributes[i];
      if (!is_set(values_[i]))
        throw Failure(std::string(name()) + ": node " + quoted(get_friendly_name()) + " has no attribute " +
                      quoted(attribute.name) + ", and the definition gives it no default. Write it on the node, as " +
                      kind_text(attribute.kind) + ".");
    }
    if (views_ == nullptr)
      views_ = std::make_unique<const AttributeViews>(values_);
  }

  // ---- Dtypes

  const TypeRow &dtype_of(const TensorRow &tensor) const { return *dtypes_[static_cast<size_t>(tensor.element)]; }

  // Those of the first inputs that this node has, which are the model's. Later ones may be the plugin's.
  void settle_dtypes() {
    if (kernel_ != nullptr)
      return;
    for (size_t i = 0; i < get_input_size(); ++i)
      if (get_input_element_type(i).is_dynamic())
        return;
    std::vector<const TypeRow *> found(dtypes_.size());
    for (size_t i = 0; i < get_input_size(); ++i) {
      const TensorRow &input = input_row(i);
      const TypeRow *&dtype = found[static_cast<size_t>(input.element)];
      const TypeRow *given = admitted(input, get_input_element_type(i));
      if (given == nullptr || (dtype != nullptr && dtype != given))
        throw Failure(wrong_dtype(i, dtype));
      dtype = given;
    }
    dtypes_ = std::move(found);
    find_kernel();
  }

  const TypeRow *admitted(const TensorRow &tensor, const ov::element::Type &type) const {
    const ElementRow &element = kind_->row->elements[tensor.element];
    for (int i = 0; i < element.n_types; ++i)
      if (type_of(type_row(element, i)) == type)
        return &type_row(element, i);
    return nullptr;
  }

  std::string wrong_dtype(size_t index, const TypeRow *bound) const {
    const TensorRow &input = input_row(index);
    const ElementRow &element = kind_->row->elements[input.element];
    std::string text = std::string(name()) + ": input " + quoted(input.name) + " of node " +
                       quoted(get_friendly_name()) + " has type " + get_input_element_type(index).get_type_name() +
                       "; ";
    if (bound != nullptr)
      return text + "another input of the same dtype variable " + quoted(element.name) + " has " + bound->openvino +
             ". Give both the same.";
    text += "its definition admits ";
    for (int i = 0; i < element.n_types; ++i)
      text += (i > 0 ? ", " : "") + std::string(type_row(element, i).openvino);
    return text + ". Convert it.";
  }

  // Variables that only outputs or absent inputs name are free: the first kernel that fits the rest decides.
  void find_kernel() {
    const oneop_operator &entry = *kind_->entry;
    for (int32_t k = 0; k < entry.n_kernels; ++k) {
      const oneop_kernel &kernel = entry.kernels[k];
      std::vector<const TypeRow *> all = dtypes_;
      if (kernel.device_type == 1 && matches(kernel, all)) {
        dtypes_ = std::move(all);
        kernel_ = kernel.run;
        return;
      }
    }
    std::string wanted;
    for (size_t i = 0; i < dtypes_.size(); ++i)
      if (kind_->row->elements[i].n_types > 1 && dtypes_[i] != nullptr) // a fixed dtype is not why
        wanted += (wanted.empty() ? "" : ", ") + std::string(dtypes_[i]->name);
    throw Failure(std::string(name()) + ": node " + quoted(get_friendly_name()) + " has " + wanted +
                  " inputs, and this library holds no kernel for that. Add the dtype to the operator's `dtypes` and "
                  "build the library again, or export the model with fallback=\"inline\", which needs no library.");
  }

  bool matches(const oneop_kernel &kernel, std::vector<const TypeRow *> &all) const {
    for (size_t i = 0; i < all.size(); ++i) {
      const ElementRow &element = kind_->row->elements[i];
      const TypeRow *own = nullptr;
      for (int j = 0; j < element.n_types; ++j)
        if (std::memcmp(&type_row(element, j).dtype, &kernel.dtypes[i], sizeof(oneop_dtype)) == 0)
          own = &type_row(element, j);
      if (own == nullptr || (all[i] != nullptr && all[i] != own))
        return false;
      all[i] = own;
    }
    return true;
  }

  ov::element::Type output_type(const TensorRow &output) const {
    if (kernel_ == nullptr)
      return ov::element::dynamic;
    const bool first_is_wide = is_wide(type_of(dtype_of(kind_->row->outputs[0])));
    const ov::element::Type type = type_of(dtype_of(output));
    return first_is_wide && is_wide(type) ? type : plugin_type(type);
  }

  static ov::Tensor as_dtype(const ov::Tensor &tensor, const ov::element::Type &type) {
    if (tensor.get_element_type() != type) {
      ov::Tensor converted(type, tensor.get_shape());
      convert(tensor, converted);
      return converted;
    }
    if (tensor.is_continuous())
      return tensor;
    ov::Tensor copy(type, tensor.get_shape());
    tensor.copy_to(copy);
    return copy;
  }

  static ov::Output<ov::Node> zero(const ov::element::Type &type) {
    return std::make_shared<ov::op::v0::Constant>(type, ov::Shape{}, 0)->output(0);
  }

  // 64 bits that do not fit 32 would be other numbers.
  void require_narrow(size_t index, ov::Tensor tensor, const ov::element::Type &type) const {
    if (!is_wide(tensor.get_element_type()) || is_wide(type))
      return;
    const auto *values = static_cast<const int64_t *>(tensor.data()); // beyond 2^63, uint64 is negative here
    const auto *end = values + tensor.get_size();
    const auto *found = std::find_if(values, end, [](int64_t value) { return value < INT32_MIN || value > INT32_MAX; });
    if (found != end)
      throw Failure(std::string(name()) + ": output " + quoted(output_row(index).name) + " holds " +
                    (tensor.get_element_type() == ov::element::u64 ? std::to_string(static_cast<uint64_t>(*found))
                                                                   : std::to_string(*found)) +
                    ", and OpenVINO computes 64-bit integers in 32 bits, unless the operator's first output has 64. "
                    "Give smaller numbers, or name this output first.");
  }

  static void convert(const ov::Tensor &from, ov::Tensor &to) {
    if (to.get_shape() != from.get_shape())
      to.set_shape(from.get_shape());
    ov::op::v0::Convert conversion;
    conversion.set_destination_type(to.get_element_type());
    ov::TensorVector target{to};
    if (from.get_size() > 0 && !conversion.evaluate(target, {from}))
      throw Failure("OpenVINO cannot convert " + from.get_element_type().get_type_name() + " to " +
                    to.get_element_type().get_type_name() + ". Change the dtype of the model's input.");
  }

  // ---- Shapes

  void infer_shapes() {
    Call call(*kind_, counts_, views_->data());
    for (size_t i = 0; i < call.n_inputs(); ++i)
      describe_input(call, i);
    call.compute_shapes();
    set_output_size(call.n_outputs());
    for (size_t i = 0; i < call.n_outputs(); ++i) {
      const TensorRow &row = output_row(i);
      set_output_type(i, output_type(row), output_shape(call, row, i));
    }
  }

  void describe_input(Call &call, size_t index) {
    const ov::PartialShape &shape = get_input_partial_shape(index);
    oneop_tensor &tensor = call.input(index);
    const TensorRow &row = input_row(index);
    if (shape.rank().is_dynamic()) {
      const int64_t leading = row.batch < 0 ? 0 : std::max<int64_t>(batch_rank(row.batch), 0);
      tensor.ndim = static_cast<int32_t>(leading + row.n_dims);
      std::fill(tensor.shape, tensor.shape + tensor.ndim, ONEOP_UNKNOWN);
      return;
    }
    call.check_rank(shape.size());
    tensor.ndim = static_cast<int32_t>(shape.size());
    for (size_t d = 0; d < shape.size(); ++d)
      tensor.shape[d] = shape[d].is_static() ? shape[d].get_length() : ONEOP_UNKNOWN;
  }

  // How many dimensions a group of leading ones has; -1 where no input says.
  int64_t batch_rank(int batch) const {
    for (size_t i = 0; i < get_input_size(); ++i)
      if (input_row(i).batch == batch && get_input_partial_shape(i).rank().is_static())
        return std::max<int64_t>(get_input_partial_shape(i).rank().get_length() - input_row(i).n_dims, 0);
    return -1;
  }

  ov::PartialShape output_shape(Call &call, const TensorRow &row, size_t index) const {
    if (row.mirrors >= 0)
      return mirrored_shape(row, index);
    if (row.batch >= 0 && batch_rank(row.batch) < 0)
      return ov::PartialShape::dynamic();
    const oneop_tensor &tensor = call.output(index);
    ov::PartialShape shape = ov::PartialShape::dynamic(tensor.ndim);
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      const int32_t own = d - (tensor.ndim - row.n_dims);
      if (tensor.shape[d] != ONEOP_UNKNOWN)
        shape[d] = tensor.shape[d];
      else if (own < 0)
        shape[d] = leading_dimension(row.batch, d);
      else if (row.names[own] >= 0)
        shape[d] = named_dimension(row.names[own]);
    }
    return shape;
  }

  // An absent input has a gradient of no elements.
  ov::PartialShape mirrored_shape(const TensorRow &row, size_t index) const {
    size_t input = 0, output = 0;
    for (int i = 0; i < row.mirrors; ++i)
      input += static_cast<size_t>(counts_[static_cast<size_t>(i)]);
    if (counts_[static_cast<size_t>(row.mirrors)] == 0)
      return ov::PartialShape{0};
    for (int i = 0; &kind_->row->outputs[i] != &row; ++i)
      output += static_cast<size_t>(Call::count_of_output(*kind_->row, counts_, i));
    return get_input_partial_shape(input + (index - output));
  }

  // Intervals and symbols of a dimension that is not known: all that the inputs say of it.
  ov::Dimension leading_dimension(int batch, int32_t dimension) const {
    ov::Dimension result = ov::Dimension::dynamic();
    for (size_t i = 0; i < get_input_size(); ++i)
      if (input_row(i).batch == batch && get_input_partial_shape(i).rank().is_static())
        merge(result, get_input_partial_shape(i)[static_cast<size_t>(dimension)]);
    return result;
  }

  ov::Dimension named_dimension(int named) const {
    ov::Dimension result = ov::Dimension::dynamic();
    for (size_t i = 0; i < get_input_size(); ++i) {
      const TensorRow &row = input_row(i);
      const ov::PartialShape &shape = get_input_partial_shape(i);
      for (int d = 0; d < row.n_dims && shape.rank().is_static(); ++d)
        if (row.names[d] == named)
          merge(result, shape[shape.size() - static_cast<size_t>(row.n_dims - d)]);
    }
    return result;
  }

  static void merge(ov::Dimension &result, const ov::Dimension &dimension) {
    ov::Dimension both;
    if (ov::Dimension::merge(both, result, dimension)) // intervals that do not meet fail when the sizes are known
      result = both;
  }

  const Kind *kind_;
  std::vector<int64_t> counts_;                 // of tensors, one an input of the definition
  std::vector<Value> values_;                   // one an attribute
  std::vector<const TypeRow *> dtypes_;         // one a dtype variable, once they are settled
  oneop_function kernel_ = nullptr;             // found when they are settled
  std::unique_ptr<const AttributeViews> views_; // of values_
};

// ---- From ONNX ----------------------------------------------------------------------------------------------------

using ov::frontend::NodeContext;

template <class T> const T *held(const ov::Any &any) {
  return any.is<T>() ? static_cast<const T *>(any.addressof()) : nullptr;
}

// Integers are taken where the definition says float: exporters write 2 for 2.0. An empty list has any kind.
Value value_of(const AttributeRow &attribute, const ov::Any &any) {
  const auto *integer = held<int64_t>(any);
  const auto *number = held<float>(any);
  const auto *precise = held<double>(any);
  const auto *text = held<std::string>(any);
  const auto *integers = held<std::vector<int64_t>>(any);
  const auto *numbers = held<std::vector<float>>(any);
  const auto *precises = held<std::vector<double>>(any);
  const auto *texts = held<std::vector<std::string>>(any);
  const bool is_empty = (integers != nullptr && integers->empty()) || (numbers != nullptr && numbers->empty()) ||
                        (precises != nullptr && precises->empty()) || (texts != nullptr && texts->empty());
  switch (attribute.kind) {
  case ONEOP_FLOAT:
    if (precise != nullptr)
      return *precise;
    if (number != nullptr)
      return static_cast<double>(*number);
    if (integer != nullptr)
      return static_cast<double>(*integer);
    break;
  case ONEOP_INT:
    if (integer != nullptr)
      return *integer;
    break;
  case ONEOP_BOOL:
    if (integer != nullptr)
      return *integer != 0;
    break;
  case ONEOP_STRING:
    if (text != nullptr)
      return *text;
    break;
  case ONEOP_FLOATS:
    if (precises != nullptr)
      return *precises;
    if (numbers != nullptr)
      return std::vector<double>(numbers->begin(), numbers->end());
    if (integers != nullptr)
      return std::vector<double>(integers->begin(), integers->end());
    if (is_empty)
      return std::vector<double>();
    break;
  case ONEOP_INTS:
    if (integers != nullptr)
      return *integers;
    if (is_empty)
      return std::vector<int64_t>();
    break;
  case ONEOP_STRINGS:
    if (texts != nullptr)
      return *texts;
    if (is_empty)
      return std::vector<std::string>();
    break;
  case ONEOP_NONE:
    break;
  }
  return Unset{};
}

std::vector<Value> read_attributes(const OperatorRow &row, const NodeContext &node) {
  std::vector<Value> values;
  for (int i = 0; i < row.n_attributes; ++i) {
    const AttributeRow &attribute = row.attributes[i];
    const ov::Any any = node.get_attribute_as_any(attribute.name);
    if (any.empty()) { // a node that says nothing has the default; the node itself says where there is none
      values.push_back(attribute.initial == nullptr ? Value(Unset{}) : read_value(attribute, attribute.initial));
      continue;
    }
    values.push_back(value_of(attribute, any));
    if (!is_set(values.back()))
      throw Failure(std::string(row.name) + ": attribute " + quoted(attribute.name) + " of node " +
                    quoted(node.get_name()) + " has the wrong kind. Write it as " + kind_text(attribute.kind) + ".");
  }
  return values;
}

bool is_absent(const ov::Output<ov::Node> &input) {
  return std::strcmp(input.get_node()->get_type_name(), "NullNode") == 0; // how the front end shows an empty name
}

ov::OutputVector convert_node(const Kind &kind, const NodeContext &node) {
  const OperatorRow &row = *kind.row;
  const size_t given = node.get_input_size();
  ov::OutputVector inputs;
  std::vector<int64_t> counts;
  size_t next = 0;
  for (int i = 0; i < row.n_inputs; ++i) {
    counts.push_back(0);
    const size_t end = row.inputs[i].arity == Arity::variadic ? std::max(given, next) : next + 1;
    for (; next < end; ++next) {
      if (next >= given)
        continue;
      const ov::Output<ov::Node> input = node.get_input(static_cast<int>(next));
      if (is_absent(input))
        continue;
      inputs.push_back(input);
      ++counts.back();
    }
  }
  if (given > next)
    throw Failure(std::string(row.name) + ": node " + quoted(node.get_name()) + " has " + std::to_string(given) +
                  " inputs; its definition has " + std::to_string(row.n_inputs) + ". Connect those it defines.");
  auto operation = std::make_shared<Operation>(kind);
  operation->describe(node.get_name(), std::move(counts), read_attributes(row, node));
  operation->set_arguments(inputs);
  operation->constructor_validate_and_infer_types();
  return operation->model_outputs();
}

// ---- Registration -------------------------------------------------------------------------------------------------

// Makes nodes of models in OpenVINO's own format.
class Extension final : public ov::BaseOpExtension {
public:
  explicit Extension(const Kind &kind) : kind_(kind) {}

  const ov::DiscreteTypeInfo &get_type_info() const override { return kind_.type_info; }

  ov::OutputVector create(const ov::OutputVector &inputs, ov::AttributeVisitor &visitor) const override {
    auto operation = std::make_shared<Operation>(kind_);
    operation->set_arguments(inputs);
    if (operation->visit_attributes(visitor))
      operation->constructor_validate_and_infer_types();
    return operation->outputs();
  }

  std::vector<ov::Extension::Ptr> get_attached_extensions() const override { return {}; }

private:
  const Kind &kind_;
};

// Nodes of any model point to these, so they stay as long as the process.
const std::vector<Kind> &kinds() {
  static const std::vector<Kind> &all = *new std::vector<Kind>([] {
    std::vector<Kind> made;
    const oneop_library *library = oneop_library_v1();
    for (int i = 0; i < n_operators; ++i)
      for (int32_t j = 0; j < library->n_operators; ++j)
        if (std::strcmp(operators[i].name, library->operators[j].name) == 0) {
          made.push_back({&operators[i], &library->operators[j],
                          ov::DiscreteTypeInfo(operators[i].type_name, "oneop", &ov::op::Op::get_type_info_static())});
          made.back().type_info.hash();
        }
    return made;
  }());
  return all;
}

} // namespace
} // namespace oneop_openvino

OPENVINO_EXTENSION_C_API void OV_CREATE_EXTENSION(std::vector<ov::Extension::Ptr> &extensions) {
  for (const oneop_openvino::Kind &kind : oneop_openvino::kinds()) {
    extensions.push_back(std::make_shared<oneop_openvino::Extension>(kind));
    extensions.push_back(std::make_shared<ov::frontend::onnx::ConversionExtension>(
        kind.row->onnx_name, kind.row->domain,
        [&kind](const ov::frontend::NodeContext &node) { return oneop_openvino::convert_node(kind, node); }));
  }
}
