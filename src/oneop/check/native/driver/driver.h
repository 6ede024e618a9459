/* driver.h: a host that calls kernels outside Python and looks at what they do to memory.
 *
 * main.c reads the arguments, cases.c the file of cases, blocks.c owns memory between red zones, call.c is the host that
 * a kernel sees, results.c compares what calls gave, properties.c and together.c ask the questions, report.c answers.
 */
#ifndef ONEOP_DRIVER_H
#define ONEOP_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oneop.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#endif

/* Values of what was in memory before. As floats: large and finite, NaN, and small; as integers: large, -1, and large. */
enum { FIRST_FILL = 0x4b, SECOND_FILL = 0xff, THIRD_FILL = 0x3d };

/* ---- cases.c: the file of cases ---------------------------------------------------------------------------------- */

typedef struct case_tensor {
  oneop_dtype dtype;
  int32_t ndim;
  int64_t *shape;
  int64_t *strides; /* NULL where the kernel is promised contiguous memory */
  const char *data; /* its elements in C order */
  int64_t count, bytes;
  int64_t span; /* bytes from the first element in memory to the end of the last */
} case_tensor;

typedef struct case_output {
  oneop_dtype dtype;
  int64_t count;
  bool matters; /* false for a gradient that nobody asks for: it may hold anything */
} case_output;

typedef struct test_case {
  int64_t number;
  const char *operator_name;
  const oneop_operator *operator;
  oneop_function run;
  int64_t n_inputs, n_outputs, n_attributes;
  int64_t n_input_tensors, n_output_tensors;
  int64_t *input_counts;
  case_tensor *tensors; /* of all inputs, one after the other */
  case_output *outputs;
  oneop_attribute *attributes;
} test_case;

typedef struct test_cases {
  int64_t count;
  test_case *list;
} test_cases;

/* Ends the program with a message where the file is damaged, or a case does not fit the library. */
test_cases read_cases(const char *path, const oneop_library *library);

void *allocate(size_t count, size_t size);
_Noreturn void give_up(const char *format, ...) ONEOP_PRINTF(1, 2);

/* ---- blocks.c: memory between red zones --------------------------------------------------------------------------- */

typedef struct block {
  char *base;
  char *data;    /* what a kernel is given */
  size_t size;   /* of data */
  size_t before; /* of the red zone in front; the one behind ends at `total` */
  size_t total;
  unsigned char fill;
} block;

/* `shift` bytes behind a multiple of 64. Data and red zones hold `fill`. data is NULL where there is no memory. */
block new_block(size_t size, size_t shift, unsigned char fill);
void free_block(block *block);

typedef struct stray {
  bool found, before;
  int64_t distance; /* bytes from the block's edge to the nearest write */
  int64_t bytes;    /* how many changed */
} stray;

stray find_stray(const block *block);

/* ---- call.c: one call of a kernel, and the host it sees ------------------------------------------------------------ */

typedef struct settings {
  int threads, pieces;
  bool backwards; /* the pieces of parallel_for, last first */
  unsigned char fill_outputs, fill_scratch, fill_inputs, fill_rest;
  size_t shift; /* of the inputs' memory, in elements */
} settings;

extern const settings PLAIN;

typedef struct call {
  oneop_context context; /* first: the host's functions get this */
  const test_case *test;
  settings how;
  oneop_argument *inputs, *outputs;
  oneop_tensor *input_tensors, *output_tensors;
  block *input_blocks, *output_blocks, *scratch;
  int64_t (*shapes)[ONEOP_MAX_NDIM];
  size_t n_scratch;
  int64_t *dims;
  pthread_mutex_t lock;
  bool failed, was_parallel;
  char message[2048];
} call;

call *new_call(const test_case *test, settings how);
void free_call(call *self);
/* Calls the kernel. False where it fails; `message` then says why. Memory of the call before is given back. */
bool run_call(call *self);
void release_call(call *self);

typedef enum place_kind { INPUT, OUTPUT, SCRATCH } place_kind;

/* Which memory of the call that runs now, for the report of a sanitizer. */
typedef struct place {
  bool found;
  place_kind kind;
  int64_t number, tensor; /* of an input or output; number of a scratch block */
  int64_t distance;       /* bytes, from the beginning; from the end if `behind` */
  bool behind;
  int64_t bits; /* of an element */
} place;

place place_of(const call *self, const char *address);
void number_of(const int64_t count, const oneop_argument *arguments, int64_t flat, int64_t *number, int64_t *tensor);
size_t bytes_of(oneop_dtype dtype);

/* ---- results.c: what calls gave ----------------------------------------------------------------------------------- */

typedef struct result_tensor {
  oneop_dtype dtype;
  bool matters;
  int32_t ndim;
  int64_t shape[ONEOP_MAX_NDIM];
  int64_t count;
  size_t bytes;
  char *data;
} result_tensor;

typedef struct result {
  int64_t count;
  result_tensor *tensors;
} result;

typedef struct difference {
  bool found, shape;
  int64_t flat; /* number of the output tensor */
  int64_t element, elements;
  double first, second;
} difference;

result take_result(const call *self);
void free_result(result *self);
/* `close`: differences of rounding are none. */
difference compare(const result *expected, const call *given, bool close);

/* ---- properties.c and together.c: the questions --------------------------------------------------------------------- */

typedef enum phase {
  VALUES = 1,
  REPEATED = 2,
  FILLS = 4,
  THREADS = 8,
  ALIGNMENT = 16,
  CALLERS = 32,
  MEMORY = 64,
} phase;

typedef struct driver {
  test_cases cases;
  int phases;
  int outputs; /* file descriptor */
  int64_t written;
  result *expected; /* one a case; of those that worked */
  bool *steady;     /* whether repeated calls of a case gave the same */
} driver;

void check_case(driver *self, const test_case *test);
void check_together(driver *self);

/* ---- statics.c ----------------------------------------------------------------------------------------------------- */

/* Whether work changes a static or global variable of the library that holds `function`; true where that is not known. */
bool changes_statics(oneop_function function, void (*work)(void *data), void *data);

/* ---- report.c: lines of JSON on the standard output ------------------------------------------------------------------ */

void say(const char *format, ...) ONEOP_PRINTF(1, 2);
void say_at(const test_case *test, const char *phase);
void say_failed(const call *self, const char *phase);
void say_difference(const call *self, const char *property, difference difference, const char *about);
/* Looks at the red zones of a call, and at its inputs. */
void say_strays(const call *self);
void say_outputs(driver *self, const test_case *test, const result *result);
/* The call that a sanitizer's report is about; NULL where none or many run. */
void set_current(const call *self);

#endif
