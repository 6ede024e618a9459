// Serves an ONNX model whose operators oneop defined, without Python: serve MODEL [LIBRARY...] < numbers
//
// Reads a matrix, one row a line, and prints the model's first output, one row a line. With the library that
// `oneop build` wrote the operators' kernels run; without it the functions in the file.
#include <onnxruntime_c_api.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const OrtApi *ort() {
  static const OrtApi *const api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (api == nullptr)
    throw std::runtime_error(std::string("ONNX Runtime ") + OrtGetApiBase()->GetVersionString() +
                             " is too old for this program");
  return api;
}

void check(OrtStatus *status) {
  if (status == nullptr)
    return;
  const std::string message = ort()->GetErrorMessage(status);
  ort()->ReleaseStatus(status);
  throw std::runtime_error(message);
}

// What the interface makes, released at the end of its scope.
template <class T> using Owned = std::unique_ptr<T, void (*)(T *)>;

struct Matrix {
  std::vector<float> values;
  std::vector<int64_t> sizes;
};

Matrix read(std::istream &input) {
  Matrix matrix;
  int64_t rows = 0, columns = 0;
  for (std::string line; std::getline(input, line); ++rows) {
    std::istringstream numbers(line);
    int64_t count = 0;
    for (float number = 0; numbers >> number; ++count)
      matrix.values.push_back(number);
    if (!numbers.eof() || (rows > 0 && count != columns))
      throw std::runtime_error("line " + std::to_string(rows + 1) + " is not a row of numbers as long as the first");
    columns = count;
  }
  matrix.sizes = {rows, columns};
  return matrix;
}

void print(OrtValue *value) {
  OrtTensorTypeAndShapeInfo *info = nullptr;
  check(ort()->GetTensorTypeAndShape(value, &info));
  const Owned<OrtTensorTypeAndShapeInfo> owned(info, ort()->ReleaseTensorTypeAndShapeInfo);
  std::size_t rank = 0;
  check(ort()->GetDimensionsCount(info, &rank));
  std::vector<int64_t> sizes(rank);
  check(ort()->GetDimensions(info, sizes.data(), rank));
  void *data = nullptr;
  check(ort()->GetTensorMutableData(value, &data));
  const float *number = static_cast<const float *>(data);
  const int64_t columns = sizes.empty() ? 1 : sizes.back();
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < rank; ++i)
    rows *= sizes[i];
  std::cout.precision(9);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      std::cout << *number++ << (column + 1 < columns ? " " : "\n");
}

class Session {
public:
  Session(const char *model, const std::vector<const char *> &libraries) {
    OrtEnv *env = nullptr;
    check(ort()->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "serve", &env));
    env_.reset(env);
    OrtSessionOptions *made = nullptr;
    check(ort()->CreateSessionOptions(&made));
    const Owned<OrtSessionOptions> options(made, ort()->ReleaseSessionOptions);
    for (const char *library : libraries)
      check(ort()->RegisterCustomOpsLibrary_V2(made, library));
    OrtSession *session = nullptr;
    check(ort()->CreateSession(env, model, made, &session));
    session_.reset(session);
    OrtAllocator *allocator = nullptr;
    check(ort()->GetAllocatorWithDefaultOptions(&allocator));
    input_ = name(allocator, ort()->SessionGetInputName);
    output_ = name(allocator, ort()->SessionGetOutputName);
  }

  Owned<OrtValue> run(Matrix &matrix) const {
    OrtMemoryInfo *cpu = nullptr;
    check(ort()->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &cpu));
    const Owned<OrtMemoryInfo> memory(cpu, ort()->ReleaseMemoryInfo);
    OrtValue *made = nullptr; // it borrows the numbers of the matrix
    check(ort()->CreateTensorWithDataAsOrtValue(cpu, matrix.values.data(), matrix.values.size() * sizeof(float),
                                                matrix.sizes.data(), matrix.sizes.size(),
                                                ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &made));
    const Owned<OrtValue> input(made, ort()->ReleaseValue);
    const char *const inputs[] = {input_.c_str()};
    const char *const outputs[] = {output_.c_str()};
    const OrtValue *const values[] = {made};
    OrtValue *result = nullptr;
    check(ort()->Run(session_.get(), nullptr, inputs, values, 1, outputs, 1, &result));
    return {result, ort()->ReleaseValue};
  }

private:
  template <class GetName> std::string name(OrtAllocator *allocator, GetName get) const {
    char *text = nullptr;
    check(get(session_.get(), 0, allocator, &text));
    const std::string found = text;
    check(ort()->AllocatorFree(allocator, text));
    return found;
  }

  Owned<OrtEnv> env_{nullptr, ort()->ReleaseEnv};
  Owned<OrtSession> session_{nullptr, ort()->ReleaseSession};
  std::string input_, output_;
};

} // namespace

int main(int count, char **arguments) {
  if (count < 2) {
    std::cerr << "usage: serve MODEL [LIBRARY...] < numbers\n";
    return 2;
  }
  try {
    const Session session(arguments[1], {arguments + 2, arguments + count});
    Matrix matrix = read(std::cin);
    print(session.run(matrix).get());
  } catch (const std::exception &error) {
    std::cerr << "serve: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
