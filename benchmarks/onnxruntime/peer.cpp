// The operator of muladd.py as a custom op for ONNX Runtime, written by hand and with care: it allocates nothing in a run,
// checks its sizes and reads its attribute once. It serves the same releases as oneop's library (1.17 and newer), and
// declares the few entries of the C API that it uses.
#include <cstdint>
#include <cstring>

struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;
struct OrtCustomOp;

using Entry = void (*)();
using Api = const Entry *; // the C API is a table of functions
struct OrtApiBase {
  Api (*get_api)(std::uint32_t version);
  const char *(*version)();
};

template <class Function> Function entry(Api api, int index) { return reinterpret_cast<Function>(api[index]); }
enum : int {
  CreateStatus = 0,
  CreateCustomOpDomain = 26,
  CustomOpDomain_Add = 27,
  AddCustomOpDomain = 28,
  GetTensorMutableData = 51,
  GetDimensionsCount = 61,
  GetDimensions = 62,
  GetTensorTypeAndShape = 65,
  KernelInfoGetAttribute_float = 85,
  KernelContext_GetInput = 90,
  KernelContext_GetOutput = 91,
  ReleaseTensorTypeAndShapeInfo = 99
};

struct OrtCustomOp {
  std::uint32_t version;
  void *(*create_kernel)(const OrtCustomOp *, Api, const OrtKernelInfo *);
  const char *(*name)(const OrtCustomOp *);
  const char *(*provider)(const OrtCustomOp *);
  int (*input_type)(const OrtCustomOp *, std::size_t);
  std::size_t (*input_count)(const OrtCustomOp *);
  int (*output_type)(const OrtCustomOp *, std::size_t);
  std::size_t (*output_count)(const OrtCustomOp *);
  void (*compute)(void *, OrtKernelContext *);
  void (*destroy)(void *);
  int (*input_characteristic)(const OrtCustomOp *, std::size_t);
  int (*output_characteristic)(const OrtCustomOp *, std::size_t);
  int (*memory_type)(const OrtCustomOp *, std::size_t);
  int (*input_arity)(const OrtCustomOp *);
  int (*input_homogeneity)(const OrtCustomOp *);
  int (*output_arity)(const OrtCustomOp *);
  int (*output_homogeneity)(const OrtCustomOp *);
  OrtStatus *(*create_kernel_v2)(const OrtCustomOp *, Api, const OrtKernelInfo *, void **);
  OrtStatus *(*compute_v2)(void *, OrtKernelContext *);
  OrtStatus *(*infer_shapes)(const OrtCustomOp *, OrtShapeInferContext *);
  int (*start_version)(const OrtCustomOp *);
  int (*end_version)(const OrtCustomOp *);
};

namespace {

class MulAdd {
public:
  MulAdd(Api api, float alpha)
      : status_(entry<decltype(status_)>(api, CreateStatus)), data_(entry<decltype(data_)>(api, GetTensorMutableData)),
        input_(entry<decltype(input_)>(api, KernelContext_GetInput)),
        output_(entry<decltype(output_)>(api, KernelContext_GetOutput)),
        shape_(entry<decltype(shape_)>(api, GetTensorTypeAndShape)),
        count_(entry<decltype(count_)>(api, GetDimensionsCount)), sizes_(entry<decltype(sizes_)>(api, GetDimensions)),
        release_(entry<decltype(release_)>(api, ReleaseTensorTypeAndShapeInfo)), alpha_(alpha) {}

  OrtStatus *compute(OrtKernelContext *context) const {
    const OrtValue *x = nullptr, *w = nullptr;
    OrtValue *out = nullptr;
    void *x_data = nullptr, *w_data = nullptr, *out_data = nullptr;
    std::int64_t sizes[MAX_NDIM], w_sizes[MAX_NDIM];
    std::size_t ndim = 0, w_ndim = 0;
    if (OrtStatus *status = input_(context, 0, &x))
      return status;
    if (OrtStatus *status = input_(context, 1, &w))
      return status;
    if (OrtStatus *status = shape(x, sizes, ndim))
      return status;
    if (OrtStatus *status = shape(w, w_sizes, w_ndim))
      return status;
    if (ndim != w_ndim || std::memcmp(sizes, w_sizes, ndim * sizeof *sizes) != 0)
      return status_(2, "MulAdd: x and w have different shapes");
    if (OrtStatus *status = data_(const_cast<OrtValue *>(x), &x_data))
      return status;
    if (OrtStatus *status = data_(const_cast<OrtValue *>(w), &w_data))
      return status;
    if (OrtStatus *status = output_(context, 0, sizes, ndim, &out))
      return status;
    if (OrtStatus *status = data_(out, &out_data))
      return status;
    std::int64_t count = 1;
    for (std::size_t d = 0; d < ndim; ++d)
      count *= sizes[d];
    const float *a = static_cast<const float *>(x_data), *b = static_cast<const float *>(w_data);
    float *result = static_cast<float *>(out_data);
    for (std::int64_t i = 0; i < count; ++i)
      result[i] = alpha_ * a[i] * b[i];
    return nullptr;
  }

private:
  static constexpr std::size_t MAX_NDIM = 8;

  OrtStatus *shape(const OrtValue *value, std::int64_t *sizes, std::size_t &ndim) const {
    OrtTensorTypeAndShapeInfo *info = nullptr;
    if (OrtStatus *status = shape_(value, &info))
      return status;
    OrtStatus *status = count_(info, &ndim);
    if (status == nullptr)
      status = ndim <= MAX_NDIM ? sizes_(info, sizes, ndim) : status_(2, "MulAdd: more than 8 dimensions");
    release_(info);
    return status;
  }

  OrtStatus *(*status_)(int, const char *);
  OrtStatus *(*data_)(OrtValue *, void **);
  OrtStatus *(*input_)(const OrtKernelContext *, std::size_t, const OrtValue **);
  OrtStatus *(*output_)(OrtKernelContext *, std::size_t, const std::int64_t *, std::size_t, OrtValue **);
  OrtStatus *(*shape_)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
  OrtStatus *(*count_)(const OrtTensorTypeAndShapeInfo *, std::size_t *);
  OrtStatus *(*sizes_)(const OrtTensorTypeAndShapeInfo *, std::int64_t *, std::size_t);
  void (*release_)(OrtTensorTypeAndShapeInfo *);
  float alpha_;
};

OrtStatus *create(const OrtCustomOp *, Api api, const OrtKernelInfo *info, void **kernel) {
  float alpha = 1;
  const auto read =
      entry<OrtStatus *(*)(const OrtKernelInfo *, const char *, float *)>(api, KernelInfoGetAttribute_float);
  if (OrtStatus *status = read(info, "alpha", &alpha))
    return status;
  *kernel = new MulAdd(api, alpha);
  return nullptr;
}

constexpr int FLOAT = 1;
const OrtCustomOp op = {
    17,
    nullptr,
    [](const OrtCustomOp *) { return "Muladd"; },
    [](const OrtCustomOp *) -> const char * { return nullptr; },
    [](const OrtCustomOp *, std::size_t) { return FLOAT; },
    [](const OrtCustomOp *) -> std::size_t { return 2; },
    [](const OrtCustomOp *, std::size_t) { return FLOAT; },
    [](const OrtCustomOp *) -> std::size_t { return 1; },
    nullptr,
    [](void *kernel) { delete static_cast<MulAdd *>(kernel); },
    [](const OrtCustomOp *, std::size_t) { return 0; },
    [](const OrtCustomOp *, std::size_t) { return 0; },
    [](const OrtCustomOp *, std::size_t) { return 0; },
    [](const OrtCustomOp *) { return 0; },
    [](const OrtCustomOp *) { return 0; },
    [](const OrtCustomOp *) { return 0; },
    [](const OrtCustomOp *) { return 0; },
    create,
    [](void *kernel, OrtKernelContext *context) { return static_cast<MulAdd *>(kernel)->compute(context); },
    nullptr,
    nullptr,
    nullptr,
};

} // namespace

extern "C" __attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options,
                                                                               const OrtApiBase *base) {
  Api api = base->get_api(17);
  OrtCustomOpDomain *domain = nullptr;
  if (OrtStatus *status =
          entry<OrtStatus *(*)(const char *, OrtCustomOpDomain **)>(api, CreateCustomOpDomain)("peer", &domain))
    return status;
  if (OrtStatus *status =
          entry<OrtStatus *(*)(OrtCustomOpDomain *, const OrtCustomOp *)>(api, CustomOpDomain_Add)(domain, &op))
    return status;
  return entry<OrtStatus *(*)(OrtSessionOptions *, OrtCustomOpDomain *)>(api, AddCustomOpDomain)(options, domain);
}
