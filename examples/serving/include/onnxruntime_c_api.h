/* The part of ONNX Runtime's C interface that serve.cpp uses, declared anew: for machines that have the shared library
 * (the one in the Python wheel, say) and no header. Where you have ONNX Runtime's own onnxruntime_c_api.h, take that one.
 *
 * The table of functions only ever grows, so that each keeps its place in every later release; `skipped_...` are those
 * between.
 */
#ifndef ONNXRUNTIME_C_API_H
#define ONNXRUNTIME_C_API_H

#include <stddef.h>
#include <stdint.h>

#define ORT_API_VERSION 17 /* the oldest that has all of these */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OrtAllocator OrtAllocator;
typedef struct OrtEnv OrtEnv;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtValue OrtValue;

typedef enum OrtLoggingLevel { ORT_LOGGING_LEVEL_WARNING = 2 } OrtLoggingLevel;
typedef enum OrtAllocatorType { OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum OrtMemType { OrtMemTypeDefault = 0 } OrtMemType;
typedef enum ONNXTensorElementDataType { ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1 } ONNXTensorElementDataType;

typedef struct OrtApi {
  void *skipped_0[2];
  const char *(*GetErrorMessage)(const OrtStatus *status); /* 2 */
  OrtStatus *(*CreateEnv)(OrtLoggingLevel level, const char *name, OrtEnv **out);
  void *skipped_4[3];
  OrtStatus *(*CreateSession)(const OrtEnv *env, const char *path, const OrtSessionOptions *options,
                              OrtSession **out); /* 7 */
  void *skipped_8[1];
  OrtStatus *(*Run)(OrtSession *session, const OrtRunOptions *options, const char *const *input_names,
                    const OrtValue *const *inputs, size_t n_inputs, const char *const *output_names, size_t n_outputs,
                    OrtValue **outputs); /* 9 */
  OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **out);
  void *skipped_11[25];
  OrtStatus *(*SessionGetInputName)(const OrtSession *session, size_t index, OrtAllocator *allocator,
                                    char **out); /* 36 */
  OrtStatus *(*SessionGetOutputName)(const OrtSession *session, size_t index, OrtAllocator *allocator, char **out);
  void *skipped_38[11];
  OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *memory, void *data, size_t bytes,
                                               const int64_t *sizes, size_t n_sizes, ONNXTensorElementDataType type,
                                               OrtValue **out); /* 49 */
  void *skipped_50[1];
  OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **out); /* 51 */
  void *skipped_52[9];
  OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out); /* 61 */
  OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *sizes, size_t n_sizes);
  void *skipped_63[2];
  OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out); /* 65 */
  void *skipped_66[3];
  OrtStatus *(*CreateCpuMemoryInfo)(OrtAllocatorType allocator, OrtMemType type, OrtMemoryInfo **out); /* 69 */
  void *skipped_70[6];
  OrtStatus *(*AllocatorFree)(OrtAllocator *allocator, void *data); /* 76 */
  void *skipped_77[1];
  OrtStatus *(*GetAllocatorWithDefaultOptions)(OrtAllocator **out); /* 78 */
  void *skipped_79[13];
  void (*ReleaseEnv)(OrtEnv *env); /* 92 */
  void (*ReleaseStatus)(OrtStatus *status);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo *memory);
  void (*ReleaseSession)(OrtSession *session);
  void (*ReleaseValue)(OrtValue *value);
  void *skipped_97[2];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info); /* 99 */
  void (*ReleaseSessionOptions)(OrtSessionOptions *options);
  void *skipped_101[127];
  OrtStatus *(*RegisterCustomOpsLibrary_V2)(OrtSessionOptions *options, const char *path); /* 228 */
} OrtApi;

typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t version); /* null where the library is older than the version */
  const char *(*GetVersionString)(void);
} OrtApiBase;

const OrtApiBase *OrtGetApiBase(void);

#ifdef __cplusplus
}
#endif

#endif /* ONNXRUNTIME_C_API_H */
