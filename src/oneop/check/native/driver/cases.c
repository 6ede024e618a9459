/* cases.c: reads the file of cases that casefile.py writes. Everything in it is a multiple of 8 bytes long. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct reader {
  const char *path;
  const char *at, *end;
} reader;

void give_up(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(2);
}

void *allocate(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size);
  if (!memory)
    give_up("oneop driver: out of memory");
  return memory;
}

static const char *take(reader *self, int64_t bytes) {
  const char *found = self->at;
  if (bytes < 0 || bytes > self->end - self->at)
    give_up("%s: the file of cases is damaged; write it again", self->path);
  self->at += bytes;
  const int64_t rest = (8 - bytes % 8) % 8;
  self->at += rest < self->end - self->at ? rest : self->end - self->at;
  return found;
}

static int64_t take_int(reader *self) {
  int64_t value;
  memcpy(&value, take(self, sizeof value), sizeof value);
  return value;
}

static int64_t take_count(reader *self) {
  const int64_t count = take_int(self);
  if (count < 0 || count > self->end - self->at)
    give_up("%s: the file of cases is damaged; write it again", self->path);
  return count;
}

/* A copy of exactly that size, so that a sanitizer sees who reads beyond it. */
static void *take_copy(reader *self, int64_t bytes) {
  const char *found = take(self, bytes);
  if (bytes == 0)
    return NULL;
  void *copy = allocate(1, (size_t)bytes);
  memcpy(copy, found, (size_t)bytes);
  return copy;
}

static oneop_string take_string(reader *self) {
  oneop_string text;
  text.size = take_count(self);
  text.data = take_copy(self, text.size);
  return text;
}

static const char *take_name(reader *self) {
  const int64_t size = take_count(self);
  char *name = allocate((size_t)size + 1, 1);
  memcpy(name, take(self, size), (size_t)size);
  return name;
}

static oneop_dtype take_dtype(reader *self) {
  oneop_dtype dtype;
  dtype.code = (uint8_t)take_int(self);
  dtype.bits = (uint8_t)take_int(self);
  dtype.lanes = 1;
  return dtype;
}

static case_tensor take_tensor(reader *self) {
  case_tensor tensor = {0};
  tensor.dtype = take_dtype(self);
  tensor.ndim = (int32_t)take_count(self);
  tensor.shape = take_copy(self, tensor.ndim * (int64_t)sizeof(int64_t));
  if (take_int(self))
    tensor.strides = take_copy(self, tensor.ndim * (int64_t)sizeof(int64_t));
  tensor.bytes = take_count(self);
  tensor.data = take(self, tensor.bytes);
  const int64_t size = (int64_t)bytes_of(tensor.dtype);
  tensor.count = tensor.bytes / size;
  tensor.span = tensor.bytes;
  if (tensor.strides && tensor.count > 0) {
    int64_t last = 0;
    for (int32_t d = 0; d < tensor.ndim; ++d)
      last += (tensor.shape[d] - 1) * tensor.strides[d];
    tensor.span = (last + 1) * size;
  }
  return tensor;
}

static oneop_attribute take_attribute(reader *self) {
  oneop_attribute attribute = {0};
  attribute.kind = take_int(self);
  switch ((oneop_attribute_kind)attribute.kind) {
  case ONEOP_NONE:
    break;
  case ONEOP_FLOAT:
    memcpy(&attribute.value.f, take(self, sizeof(double)), sizeof(double));
    break;
  case ONEOP_INT:
  case ONEOP_BOOL:
    attribute.value.i = take_int(self);
    break;
  case ONEOP_STRING:
    attribute.value.s = take_string(self);
    break;
  case ONEOP_FLOATS:
    attribute.value.fs.size = take_count(self);
    attribute.value.fs.data = take_copy(self, attribute.value.fs.size * (int64_t)sizeof(double));
    break;
  case ONEOP_INTS:
    attribute.value.is.size = take_count(self);
    attribute.value.is.data = take_copy(self, attribute.value.is.size * (int64_t)sizeof(int64_t));
    break;
  case ONEOP_STRINGS: {
    const int64_t size = take_count(self);
    oneop_string *list = size ? allocate((size_t)size, sizeof *list) : NULL;
    for (int64_t e = 0; e < size; ++e)
      list[e] = take_string(self);
    attribute.value.ss.data = list;
    attribute.value.ss.size = size;
    break;
  }
  }
  return attribute;
}

static const oneop_operator *find_operator(const oneop_library *library, const char *name) {
  for (int32_t o = 0; o < library->n_operators; ++o)
    if (strcmp(library->operators[o].name, name) == 0)
      return &library->operators[o];
  give_up("the library has no operator %s", name);
}

static oneop_function find_kernel(const oneop_operator *operator, const oneop_dtype *dtypes, int64_t n_dtypes) {
  for (int32_t k = 0; k < operator->n_kernels; ++k) {
    const oneop_kernel *kernel = &operator->kernels[k];
    bool fits = kernel->device_type == 1 && n_dtypes == operator->n_dtypes;
    for (int64_t d = 0; fits && d < n_dtypes; ++d)
      fits = kernel->dtypes[d].code == dtypes[d].code && kernel->dtypes[d].bits == dtypes[d].bits;
    if (fits)
      return kernel->run;
  }
  give_up("%s has no kernel for the dtypes of a case", operator->name);
}

static void take_inputs(reader *self, test_case *test) {
  test->n_inputs = take_count(self);
  test->input_counts = allocate((size_t)test->n_inputs, sizeof(int64_t));
  for (int64_t i = 0; i < test->n_inputs; ++i) {
    test->input_counts[i] = take_count(self);
    const int64_t first = test->n_input_tensors, count = first + test->input_counts[i];
    case_tensor *grown = realloc(test->tensors, sizeof *grown * (size_t)(count ? count : 1));
    if (!grown)
      give_up("oneop driver: out of memory");
    test->tensors = grown;
    for (int64_t t = first; t < count; ++t)
      test->tensors[t] = take_tensor(self);
    test->n_input_tensors = count;
  }
}

static test_case take_case(reader *self, int64_t number, const oneop_library *library) {
  test_case test = {.number = number, .operator_name = take_name(self)};
  test.operator = find_operator(library, test.operator_name);
  const int64_t n_dtypes = take_count(self);
  oneop_dtype *dtypes = allocate((size_t)n_dtypes, sizeof *dtypes);
  for (int64_t d = 0; d < n_dtypes; ++d)
    dtypes[d] = take_dtype(self);
  test.run = find_kernel(test.operator, dtypes, n_dtypes);
  free(dtypes);
  take_inputs(self, &test);
  test.n_attributes = take_count(self);
  test.attributes = allocate((size_t)test.n_attributes, sizeof *test.attributes);
  for (int64_t a = 0; a < test.n_attributes; ++a)
    test.attributes[a] = take_attribute(self);
  test.n_outputs = take_count(self);
  test.outputs = allocate((size_t)test.n_outputs, sizeof *test.outputs);
  for (int64_t o = 0; o < test.n_outputs; ++o) {
    test.outputs[o].dtype = take_dtype(self);
    test.outputs[o].count = take_count(self);
    test.outputs[o].matters = take_int(self) != 0;
    test.n_output_tensors += test.outputs[o].count;
  }
  if (test.n_inputs != test.operator->n_inputs || test.n_outputs != test.operator->n_outputs ||
      test.n_attributes != test.operator->n_attributes)
    give_up("%s: a case has %lld inputs, %lld outputs and %lld attributes; the library disagrees", test.operator_name,
            (long long)test.n_inputs, (long long)test.n_outputs, (long long)test.n_attributes);
  return test;
}

/* Tensors point into it; it is not given back. */
static char *text;

static reader read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0)
    give_up("%s cannot be read", path);
  const long size = ftell(file);
  rewind(file);
  text = allocate(1, size > 0 ? (size_t)size : 1);
  if (size < 0 || fread(text, 1, (size_t)size, file) != (size_t)size)
    give_up("%s cannot be read", path);
  fclose(file);
  return (reader){path, text, text + size};
}

test_cases read_cases(const char *path, const oneop_library *library) {
  reader self = read_file(path);
  if (memcmp(take(&self, 8), "oneopcs1", 8) != 0)
    give_up("%s is no file of cases", path);
  test_cases cases = {take_count(&self), NULL};
  cases.list = allocate((size_t)cases.count, sizeof *cases.list);
  for (int64_t c = 0; c < cases.count; ++c)
    cases.list[c] = take_case(&self, c, library);
  return cases;
}
