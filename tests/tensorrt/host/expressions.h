// expressions.h: TensorRT's expressions of sizes, as the test host has them: they remember what they were made of, and
// are computed once the sizes are known.
#ifndef HOST_EXPRESSIONS_H
#define HOST_EXPRESSIONS_H

#include <NvInferRuntime.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

namespace host {

using nvinfer1::DimensionOperation;

inline int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0)
    throw std::runtime_error("an expression divides by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

class Expression final : public nvinfer1::IDimensionExpr, private nvinfer1::apiv::VDimensionExpr {
public:
  enum class Kind { constant, input, operation, size_tensor };

  explicit Expression(int64_t constant) : kind(Kind::constant), value(constant) { mImpl = this; }
  Expression(Kind given, int64_t number) : kind(given), value(number) { mImpl = this; }
  Expression(DimensionOperation of, const Expression &a, const Expression &b)
      : kind(Kind::operation), operation(of), first(&a), second(&b) {
    mImpl = this;
  }

  bool isConstant() const override { return kind == Kind::constant; }
  int64_t getConstantValue() const override {
    return kind == Kind::constant ? value : std::numeric_limits<int64_t>::min();
  }
  bool isSizeTensor() const override { return kind == Kind::size_tensor; }

  // The value once the inputs' sizes are known; a size tensor counts as its upper bound.
  int64_t compute(const std::vector<int64_t> &inputs) const {
    switch (kind) {
    case Kind::constant:
      return value;
    case Kind::input:
      return inputs.at(static_cast<std::size_t>(value));
    case Kind::size_tensor:
      return first->compute(inputs);
    case Kind::operation:
      break;
    }
    const int64_t a = first->compute(inputs), b = second->compute(inputs);
    switch (operation) {
    case DimensionOperation::kSUM:
      return a + b;
    case DimensionOperation::kPROD:
      return a * b;
    case DimensionOperation::kMAX:
      return std::max(a, b);
    case DimensionOperation::kMIN:
      return std::min(a, b);
    case DimensionOperation::kSUB:
      return a - b;
    case DimensionOperation::kEQUAL:
      return a == b ? 1 : 0;
    case DimensionOperation::kLESS:
      return a < b ? 1 : 0;
    case DimensionOperation::kFLOOR_DIV:
      return floor_divide(a, b);
    case DimensionOperation::kCEIL_DIV:
      return -floor_divide(-a, b);
    }
    throw std::runtime_error("an expression has an operation that TensorRT does not know");
  }

  Kind kind;
  int64_t value = 0;
  DimensionOperation operation{};
  const Expression *first = nullptr, *second = nullptr;
};

class Builder final : public nvinfer1::IExprBuilder, private nvinfer1::apiv::VExprBuilder {
public:
  Builder() { mImpl = this; }

  const nvinfer1::IDimensionExpr *constant(int64_t value) override { return make(value); }

  const nvinfer1::IDimensionExpr *operation(DimensionOperation op, const nvinfer1::IDimensionExpr &first,
                                            const nvinfer1::IDimensionExpr &second) override {
    const auto &a = static_cast<const Expression &>(first);
    const auto &b = static_cast<const Expression &>(second);
    const Expression *const made = make(op, a, b);
    return a.isConstant() && b.isConstant() ? make(made->compute({})) : made;
  }

  const nvinfer1::IDimensionExpr *declareSizeTensor(int32_t output, const nvinfer1::IDimensionExpr &opt,
                                                    const nvinfer1::IDimensionExpr &upper) override {
    const auto &most = static_cast<const Expression &>(upper);
    if (most.isSizeTensor() || static_cast<const Expression &>(opt).isSizeTensor())
      return nullptr;
    Expression *const made = make(Expression::Kind::size_tensor, int64_t{output});
    made->first = &most;
    size_tensors.push_back(output);
    return made;
  }

  const Expression *input(int64_t number) { return make(Expression::Kind::input, number); }

  std::vector<int32_t> size_tensors; // numbers of outputs

private:
  template <class... Arguments> Expression *make(const Arguments &...arguments) {
    kept_.push_back(std::make_unique<Expression>(arguments...));
    return kept_.back().get();
  }

  std::vector<std::unique_ptr<Expression>> kept_;
};

} // namespace host

#endif // HOST_EXPRESSIONS_H
