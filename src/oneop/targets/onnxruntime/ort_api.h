/* ort_api.h: the part of ONNX Runtime's C API that the adapter uses, declared here because the onnxruntime wheel ships
 * no header. C11.
 *
 * OrtGetApiBase()->GetApi(version) returns a table of function pointers that only ever grows: an entry keeps its index
 * in every later version. A table is null where the runtime is older than the version asked for. ORT_API_VERSION_NEEDED
 * is the oldest version that has every entry used unconditionally; ORT_API_VERSION_... names the version from which on
 * an optional entry may be read.
 */
#ifndef ONEOP_ORT_API_H
#define ONEOP_ORT_API_H

#include <stddef.h>
#include <stdint.h>

#define ORT_API_VERSION_NEEDED 17
#define ORT_RELEASE_NEEDED "1.17"
#define ORT_API_VERSION_DEVICE 18        /* before it, scratch memory of a GPU did not know its stream */
#define ORT_API_VERSION_ABSENT_INPUTS 24 /* before it, shape inference of a node with an absent input crashed */
#define ORT_API_VERSION_SHAPE_REFERENCE 24
#define ORT_API_VERSION_STRINGS 25

typedef struct OrtStatus OrtStatus;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtCustomOp OrtCustomOp;

/* An entry of the table. A table is a pointer to its first entry. */
typedef void (*OrtApi)(void);

typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1, ORT_VARIADIC = 2 };
enum { ORT_UNDEFINED = 0 }; /* the element type of what is not there */
enum { ORT_OP_ATTR_INT = 1, ORT_OP_ATTR_STRINGS = 6 };

/* ORT_CALL(api, Name)(arguments...) calls an entry. One line an entry: name, index, type. */
#define ORT_CALL(api, name) ((ort_##name##_t)(api)[ort_##name##_index])
#define ORT_ENTRY(name, index, result, ...)                                                                            \
  enum { ort_##name##_index = (index) };                                                                               \
  typedef result (*ort_##name##_t)(__VA_ARGS__);

ORT_ENTRY(CreateStatus, 0, OrtStatus *, int code, const char *message)
ORT_ENTRY(GetErrorMessage, 2, const char *, const OrtStatus *)
ORT_ENTRY(CreateCustomOpDomain, 26, OrtStatus *, const char *domain, OrtCustomOpDomain **out)
ORT_ENTRY(CustomOpDomain_Add, 27, OrtStatus *, OrtCustomOpDomain *, const OrtCustomOp *)
ORT_ENTRY(AddCustomOpDomain, 28, OrtStatus *, OrtSessionOptions *, OrtCustomOpDomain *)
ORT_ENTRY(GetTensorMutableData, 51, OrtStatus *, OrtValue *, void **out)
ORT_ENTRY(CastTypeInfoToTensorInfo, 55, OrtStatus *, const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **out)
ORT_ENTRY(CreateTensorTypeAndShapeInfo, 57, OrtStatus *, OrtTensorTypeAndShapeInfo **out)
ORT_ENTRY(SetTensorElementType, 58, OrtStatus *, OrtTensorTypeAndShapeInfo *, int element)
ORT_ENTRY(SetDimensions, 59, OrtStatus *, OrtTensorTypeAndShapeInfo *, const int64_t *sizes, size_t count)
ORT_ENTRY(GetTensorElementType, 60, OrtStatus *, const OrtTensorTypeAndShapeInfo *, int *out)
ORT_ENTRY(GetDimensionsCount, 61, OrtStatus *, const OrtTensorTypeAndShapeInfo *, size_t *out)
ORT_ENTRY(GetDimensions, 62, OrtStatus *, const OrtTensorTypeAndShapeInfo *, int64_t *sizes, size_t count)
ORT_ENTRY(GetSymbolicDimensions, 63, OrtStatus *, const OrtTensorTypeAndShapeInfo *, const char **names, size_t count)
ORT_ENTRY(GetTensorTypeAndShape, 65, OrtStatus *, const OrtValue *, OrtTensorTypeAndShapeInfo **out)
ORT_ENTRY(MemoryInfoGetId, 72, OrtStatus *, const OrtMemoryInfo *, int *out)
ORT_ENTRY(AllocatorFree, 76, OrtStatus *, OrtAllocator *, void *)
ORT_ENTRY(GetAllocatorWithDefaultOptions, 78, OrtStatus *, OrtAllocator **out)
ORT_ENTRY(KernelInfoGetAttribute_float, 85, OrtStatus *, const OrtKernelInfo *, const char *name, float *out)
ORT_ENTRY(KernelInfoGetAttribute_int64, 86, OrtStatus *, const OrtKernelInfo *, const char *name, int64_t *out)
ORT_ENTRY(KernelInfoGetAttribute_string, 87, OrtStatus *, const OrtKernelInfo *, const char *name, char *out,
          size_t *size)
ORT_ENTRY(KernelContext_GetInput, 90, OrtStatus *, const OrtKernelContext *, size_t index, const OrtValue **out)
ORT_ENTRY(KernelContext_GetOutput, 91, OrtStatus *, OrtKernelContext *, size_t index, const int64_t *sizes,
          size_t count, OrtValue **out)
ORT_ENTRY(ReleaseStatus, 93, void, OrtStatus *)
ORT_ENTRY(ReleaseTypeInfo, 98, void, OrtTypeInfo *)
ORT_ENTRY(ReleaseTensorTypeAndShapeInfo, 99, void, OrtTensorTypeAndShapeInfo *)
ORT_ENTRY(AddSessionConfigEntry, 130, OrtStatus *, OrtSessionOptions *, const char *key, const char *value)
ORT_ENTRY(ReleaseAllocator, 132, void, OrtAllocator *)
ORT_ENTRY(KernelInfoGetAttributeArray_float, 162, OrtStatus *, const OrtKernelInfo *, const char *name, float *out,
          size_t *size)
ORT_ENTRY(KernelInfoGetAttributeArray_int64, 163, OrtStatus *, const OrtKernelInfo *, const char *name, int64_t *out,
          size_t *size)
ORT_ENTRY(KernelContext_GetGPUComputeStream, 193, OrtStatus *, const OrtKernelContext *, void **out)
ORT_ENTRY(GetTensorMemoryInfo, 194, OrtStatus *, const OrtValue *, const OrtMemoryInfo **out)
ORT_ENTRY(KernelInfo_GetInputCount, 230, OrtStatus *, const OrtKernelInfo *, size_t *out)
ORT_ENTRY(KernelInfo_GetOutputCount, 231, OrtStatus *, const OrtKernelInfo *, size_t *out)
ORT_ENTRY(KernelInfo_GetInputTypeInfo, 234, OrtStatus *, const OrtKernelInfo *, size_t index, OrtTypeInfo **out)
ORT_ENTRY(HasSessionConfigEntry, 237, OrtStatus *, const OrtSessionOptions *, const char *key, int *out)
ORT_ENTRY(GetSessionConfigEntry, 238, OrtStatus *, const OrtSessionOptions *, const char *key, char *value,
          size_t *size)
ORT_ENTRY(KernelInfo_GetNodeName, 244, OrtStatus *, const OrtKernelInfo *, char *out, size_t *size)
ORT_ENTRY(KernelContext_GetAllocator, 253, OrtStatus *, const OrtKernelContext *, const OrtMemoryInfo *,
          OrtAllocator **out)
ORT_ENTRY(ShapeInferContext_GetInputCount, 267, OrtStatus *, const OrtShapeInferContext *, size_t *out)
ORT_ENTRY(ShapeInferContext_GetInputTypeShape, 268, OrtStatus *, const OrtShapeInferContext *, size_t index,
          OrtTensorTypeAndShapeInfo **out)
ORT_ENTRY(ShapeInferContext_GetAttribute, 269, OrtStatus *, const OrtShapeInferContext *, const char *name,
          const OrtOpAttr **out)
ORT_ENTRY(ShapeInferContext_SetOutputTypeShape, 270, OrtStatus *, const OrtShapeInferContext *, size_t index,
          const OrtTensorTypeAndShapeInfo *)
ORT_ENTRY(SetSymbolicDimensions, 271, OrtStatus *, OrtTensorTypeAndShapeInfo *, const char **names, size_t count)
ORT_ENTRY(ReadOpAttr, 272, OrtStatus *, const OrtOpAttr *, int type, void *data, size_t size, size_t *out)
ORT_ENTRY(KernelContext_ParallelFor, 274, OrtStatus *, const OrtKernelContext *, void (*body)(void *, size_t),
          size_t total, size_t batches, void *data)
ORT_ENTRY(KernelContext_GetScratchBuffer, 277, OrtStatus *, const OrtKernelContext *, const OrtMemoryInfo *,
          size_t bytes, void **out)
ORT_ENTRY(GetTensorElementTypeAndShapeDataReference, 414, OrtStatus *, const OrtValue *, int *element,
          const int64_t **sizes, size_t *count)
ORT_ENTRY(KernelInfoGetAttributeArray_string, 417, OrtStatus *, const OrtKernelInfo *, const char *name, OrtAllocator *,
          char ***out, size_t *size)

/* What a custom operator tells the runtime. Fields beyond those of `version` are not read. */
struct OrtCustomOp {
  uint32_t version;
  void *(*CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
  const char *(*GetName)(const OrtCustomOp *);
  const char *(*GetExecutionProviderType)(const OrtCustomOp *);
  int (*GetInputType)(const OrtCustomOp *, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp *);
  int (*GetOutputType)(const OrtCustomOp *, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp *);
  void (*KernelCompute)(void *kernel, OrtKernelContext *);
  void (*KernelDestroy)(void *kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp *, size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp *, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp *, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp *);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp *);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp *);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *);
  OrtStatus *(*CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **kernel);
  OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *);
  OrtStatus *(*InferOutputShapeFn)(const OrtCustomOp *, OrtShapeInferContext *);
  int (*GetStartVersion)(const OrtCustomOp *);
  int (*GetEndVersion)(const OrtCustomOp *);
  size_t (*GetMayInplace)(int **inputs, int **outputs);
  void (*ReleaseMayInplace)(int *inputs, int *outputs);
  size_t (*GetAliasMap)(int **inputs, int **outputs);
  void (*ReleaseAliasMap)(int *inputs, int *outputs);
};

#endif /* ONEOP_ORT_API_H */
