// adapter.h: what the parts of the OpenVINO adapter share. C++17.
//
// The adapter is the same C++ for every operator. What differs stands in two tables of the same library: oneop's own
// (oneop_library_v1: how sizes are computed, which kernels there are) and the one below, which oneop generates beside
// it (names, arity, defaults: what OpenVINO asks for and kernels do not need).
#ifndef ONEOP_OPENVINO_ADAPTER_H
#define ONEOP_OPENVINO_ADAPTER_H

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "oneop.h"

namespace oneop_openvino {

// ---- The generated table ------------------------------------------------------------------------------------------

enum class Arity { required, optional, variadic };

struct TypeRow {
  oneop_dtype dtype;
  const char *name;     // as torch and numpy say it
  const char *openvino; // as ov::element::Type reads it
};

struct ElementRow { // a dtype variable and the types it admits: indexes into `types`
  const char *name;
  int n_types;
  const int *types;
};

struct TensorRow {
  const char *name;
  Arity arity;
  int element; // its dtype variable
  int batch;   // the group of leading dimensions, or -1
  int mirrors; // of an output: the input that it has the shape of, or -1
  int n_dims;
  const int *names; // of each dimension: the name that it binds or repeats, or -1 for anything else
};

struct AttributeRow {
  const char *name;
  oneop_attribute_kind kind;
  bool optional;       // admits None
  const char *initial; // the default, as JSON; null where the definition gives none
};

struct OperatorRow {
  const char *name; // as in oneop's table: "namespace::base"
  const char *domain, *onnx_name;
  const char *type_name; // of nodes in OpenVINO: "namespace::OnnxName"
  int n_inputs, n_outputs, n_attributes, n_elements, n_names;
  const TensorRow *inputs, *outputs;
  const AttributeRow *attributes;
  const ElementRow *elements;
};

extern const TypeRow types[];
extern const OperatorRow operators[];
extern const int n_operators;

// ---- attributes.cpp -----------------------------------------------------------------------------------------------

// The value of one attribute. Unset: neither the model nor the definition gives one. Null: None.
struct Unset {};
struct Null {};
using Value = std::variant<Unset, Null, double, std::int64_t, bool, std::string, std::vector<double>,
                           std::vector<std::int64_t>, std::vector<std::string>>;

inline bool is_set(const Value &value) { return !std::holds_alternative<Unset>(value); }

// Values as JSON, in which OpenVINO's files keep them. Floats keep every bit; NaN and Infinity are written as Python's
// json module does. read_value gives Unset where the text is not a value of that attribute.
std::string write_value(const Value &value);
Value read_value(const AttributeRow &attribute, const std::string &text);
std::string write_integers(const std::vector<std::int64_t> &values);
bool read_integers(const std::string &text, std::vector<std::int64_t> &out);
std::string write_strings(const std::vector<std::string> &values);
bool read_strings(const std::string &text, std::vector<std::string> &out);

const char *kind_text(oneop_attribute_kind kind); // "a float", for messages

// What kernels see of some values. Points into them and into itself: neither may move.
class AttributeViews {
public:
  explicit AttributeViews(const std::vector<Value> &values);
  AttributeViews(const AttributeViews &) = delete;
  AttributeViews &operator=(const AttributeViews &) = delete;
  const oneop_attribute *data() const { return views_.data(); }

private:
  std::vector<oneop_attribute> views_;
  std::vector<std::vector<oneop_string>> strings_;
};

// ---- threads.cpp --------------------------------------------------------------------------------------------------

// Runs body(data, b, e) on pieces that cover [begin, end), on as many threads as OpenVINO gives the calling stream.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  void (*body)(void *, std::int64_t, std::int64_t), void *data);

} // namespace oneop_openvino

#endif // ONEOP_OPENVINO_ADAPTER_H
