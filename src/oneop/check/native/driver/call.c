/* call.c: one call of a kernel: the tensors it is given, and the host it sees. */
#include "driver.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

const settings PLAIN = {.threads = 1,
                        .pieces = 1,
                        .fill_outputs = FIRST_FILL,
                        .fill_scratch = FIRST_FILL,
                        .fill_inputs = FIRST_FILL,
                        .fill_rest = FIRST_FILL};

enum { MOST_THREADS = 8, STACK = 32768 };

static _Thread_local bool inside_parallel;

size_t bytes_of(oneop_dtype dtype) { return dtype.bits < 8 ? 1 : dtype.bits / 8; }

/* ---- the host ----------------------------------------------------------------------------------------------------- */

static void note(call *self, const char *message) {
  pthread_mutex_lock(&self->lock);
  if (!self->failed)
    snprintf(self->message, sizeof self->message, "%s", message);
  self->failed = true;
  pthread_mutex_unlock(&self->lock);
}

static void host_fail(oneop_context *context, const char *message) { note((call *)context, message); }

static void *host_scratch(oneop_context *context, size_t bytes) {
  call *self = (call *)context;
  block *grown = realloc(self->scratch, (self->n_scratch + 1) * sizeof *grown);
  if (!grown)
    return NULL;
  self->scratch = grown;
  block *block = &self->scratch[self->n_scratch];
#ifdef SANITIZED_ADDRESS
  *block = new_block(bytes, 0, self->how.fill_scratch);
#else
  *block = new_block(bytes, ((uintptr_t)self->n_scratch & 1u) * 64, self->how.fill_scratch);
#endif
  if (!block->data)
    return NULL;
  ++self->n_scratch;
  return block->data;
}

static bool give_memory(call *self, int64_t flat) {
  oneop_tensor *tensor = &self->output_tensors[flat];
  uint64_t bytes = bytes_of(tensor->dtype);
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[d], &bytes) && tensor->shape[d] != 0)
      return false;
  free_block(&self->output_blocks[flat]);
  self->output_blocks[flat] = new_block((size_t)bytes, 0, self->how.fill_outputs);
  if (!self->output_blocks[flat].data)
    return false;
#ifdef SANITIZED_ADDRESS
  tensor->data = self->output_blocks[flat].data;
#else
  tensor->data = bytes ? self->output_blocks[flat].data : NULL; /* as PyTorch does */
#endif
  return true;
}

static oneop_tensor *host_resize(oneop_context *context, int32_t output, const int64_t *sizes, int32_t ndim) {
  call *self = (call *)context;
  char text[256];
  if (output < 0 || output >= self->test->n_outputs || ndim < 0 || ndim > ONEOP_MAX_NDIM) {
    snprintf(text, sizeof text, "the kernel resizes output number %d, which there is not", (int)output);
    note(self, text);
    return NULL;
  }
  oneop_tensor *tensor = self->outputs[output].tensors;
  const int64_t flat = tensor - self->output_tensors;
  if (self->output_blocks[flat].data) {
    snprintf(text, sizeof text, "the kernel resizes output number %d twice", (int)output);
    note(self, text);
    return NULL;
  }
  tensor->ndim = ndim;
  for (int32_t d = 0; d < ndim; ++d)
    tensor->shape[d] = sizes[d];
  if (!give_memory(self, flat)) {
    snprintf(text, sizeof text, "the kernel resizes output number %d to more than there is memory", (int)output);
    note(self, text);
    return NULL;
  }
  return tensor;
}

/* ---- parallel_for --------------------------------------------------------------------------------------------------- */

typedef struct pieces {
  void (*body)(void *data, int64_t begin, int64_t end);
  void *data;
  int64_t begin, end, step, count;
  bool backwards;
  int threads;
  atomic_int waiting; /* threads that have yet to arrive: all begin at once, so that races show */
} pieces;

typedef struct worker {
  pieces *all;
  int number;
} worker;

static void run_piece(const pieces *self, int64_t number) {
  const int64_t piece = self->backwards ? self->count - 1 - number : number;
  const int64_t begin = self->begin + piece * self->step;
  self->body(self->data, begin, self->end - begin < self->step ? self->end : begin + self->step);
}

/* Each thread has pieces of its own from the start. Were they taken from a counter, the counter would put the threads in
 * an order, and ThreadSanitizer would not see those race that did not run at the same moment. */
static void *work(void *given) {
  const worker *self = given;
  pieces *all = self->all;
  inside_parallel = true;
  atomic_fetch_sub(&all->waiting, 1);
  while (atomic_load(&all->waiting) > 0)
    sched_yield();
  for (int64_t number = self->number; number < all->count; number += all->threads)
    run_piece(all, number);
  inside_parallel = false;
  return NULL;
}

static void host_parallel_for(oneop_context *context, int64_t begin, int64_t end, int64_t grain,
                              void (*body)(void *data, int64_t begin, int64_t end), void *data) {
  call *self = (call *)context;
  if (begin >= end)
    return;
  if (inside_parallel) { /* nested: here and now */
    body(data, begin, end);
    return;
  }
  const int64_t total = end - begin, wanted = (total - 1) / self->how.pieces + 1;
  const int64_t step = wanted > grain ? wanted : grain, count = (total - 1) / step + 1;
  const int threads = (int)(count < self->how.threads ? count : self->how.threads);
  pieces all = {body, data, begin, end, step, count, self->how.backwards, threads, 0};
  self->was_parallel = true;
  worker workers[MOST_THREADS];
  pthread_t handles[MOST_THREADS];
  bool started[MOST_THREADS];
  atomic_store(&all.waiting, threads);
  for (int t = 0; t < threads; ++t) {
    workers[t] = (worker){&all, t};
    started[t] = t > 0 && pthread_create(&handles[t], NULL, work, &workers[t]) == 0;
  }
  for (int t = 1; t < threads; ++t)
    if (!started[t])
      atomic_fetch_sub(&all.waiting, 1);
  work(&workers[0]);
  for (int t = 1; t < threads; ++t) {
    if (started[t])
      pthread_join(handles[t], NULL);
    else /* there is no thread for them: here, then */
      for (int64_t number = t; number < count; number += threads)
        run_piece(&all, number);
  }
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

/* Puts the elements where the strides say; what lies between them keeps its filling. */
static void scatter(const case_tensor *tensor, char *memory) {
  if (!tensor->strides) {
    memcpy(memory, tensor->data, (size_t)tensor->bytes);
    return;
  }
  const size_t size = bytes_of(tensor->dtype);
  int64_t index[ONEOP_MAX_NDIM] = {0};
  for (int64_t e = 0; e < tensor->count; ++e) {
    int64_t at = 0;
    for (int32_t d = 0; d < tensor->ndim; ++d)
      at += index[d] * tensor->strides[d];
    memcpy(memory + (size_t)at * size, tensor->data + (size_t)e * size, size);
    for (int32_t d = tensor->ndim - 1; d >= 0 && ++index[d] == tensor->shape[d]; --d)
      index[d] = 0;
  }
}

static void make_inputs(call *self) {
  const test_case *test = self->test;
  int64_t flat = 0;
  for (int64_t i = 0; i < test->n_inputs; ++i) {
    self->inputs[i] = (oneop_argument){&self->input_tensors[flat], test->input_counts[i]};
    for (int64_t t = 0; t < test->input_counts[i]; ++t, ++flat) {
      const case_tensor *given = &test->tensors[flat];
      block *block = &self->input_blocks[flat];
      *block = new_block((size_t)(given->count ? given->span : 0), self->how.shift * bytes_of(given->dtype),
                         self->how.fill_inputs);
      if (!block->data)
        give_up("oneop driver: out of memory");
      if (given->count)
        scatter(given, block->data);
      self->input_tensors[flat] = (oneop_tensor){.data = block->data,
                                                 .device = {1, 0},
                                                 .ndim = given->ndim,
                                                 .dtype = given->dtype,
                                                 .shape = given->shape,
                                                 .strides = given->strides};
#ifndef SANITIZED_ADDRESS
      if (!given->count)
        self->input_tensors[flat].data = NULL;
#endif
    }
  }
}

static void make_outputs(call *self) {
  const test_case *test = self->test;
  int64_t flat = 0;
  for (int64_t o = 0; o < test->n_outputs; ++o) {
    self->outputs[o] = (oneop_argument){&self->output_tensors[flat], test->outputs[o].count};
    for (int64_t t = 0; t < test->outputs[o].count; ++t, ++flat)
      self->output_tensors[flat] =
          (oneop_tensor){.device = {1, 0}, .dtype = test->outputs[o].dtype, .shape = self->shapes[flat]};
  }
}

call *new_call(const test_case *test, settings how) {
  call *self = allocate(1, sizeof *self);
  const size_t inputs = (size_t)test->n_input_tensors, outputs = (size_t)test->n_output_tensors;
  self->context = (oneop_context){host_parallel_for, host_scratch, host_resize, host_fail, NULL};
  self->test = test;
  self->how = how;
  self->inputs = allocate((size_t)test->n_inputs, sizeof *self->inputs);
  self->outputs = allocate((size_t)test->n_outputs, sizeof *self->outputs);
  self->input_tensors = allocate(inputs, sizeof *self->input_tensors);
  self->output_tensors = allocate(outputs, sizeof *self->output_tensors);
  self->input_blocks = allocate(inputs, sizeof *self->input_blocks);
  self->output_blocks = allocate(outputs, sizeof *self->output_blocks);
  self->shapes = allocate(outputs, sizeof *self->shapes);
  self->dims = allocate((size_t)test->operator->n_dims, sizeof *self->dims);
  pthread_mutex_init(&self->lock, NULL);
  make_inputs(self);
  make_outputs(self);
  return self;
}

void release_call(call *self) {
  for (int64_t t = 0; t < self->test->n_output_tensors; ++t)
    free_block(&self->output_blocks[t]);
  for (size_t s = 0; s < self->n_scratch; ++s)
    free_block(&self->scratch[s]);
  self->n_scratch = 0;
}

void free_call(call *self) {
  release_call(self);
  for (int64_t t = 0; t < self->test->n_input_tensors; ++t)
    free_block(&self->input_blocks[t]);
  pthread_mutex_destroy(&self->lock);
  free(self->inputs);
  free(self->outputs);
  free(self->input_tensors);
  free(self->output_tensors);
  free(self->input_blocks);
  free(self->output_blocks);
  free(self->scratch);
  free(self->shapes);
  free(self->dims);
  free(self);
}

/* ---- the call --------------------------------------------------------------------------------------------------------- */

/* What variables on the stack hold before they are given a value. */
__attribute__((noinline)) static void fill_stack(unsigned char fill) {
  volatile unsigned char room[STACK];
  for (size_t i = 0; i < sizeof room; ++i)
    room[i] = fill;
}

/* From here on malloc gives memory that holds `fill`, where the C library can do that; 0 ends it. */
static void fill_heap(unsigned char fill) {
#if defined(__GLIBC__) && !defined(SANITIZED_ADDRESS) && !defined(SANITIZED_THREAD)
  /* glibc wants the complement, and takes 0 as the end. */
  mallopt(M_PERTURB, fill == 0 ? 0 : fill == 0xff ? 0x80 : (unsigned char)~fill);
#else
  (void)fill;
#endif
}

static bool prepare_outputs(call *self, const oneop_call *given) {
  for (int64_t t = 0; t < self->test->n_output_tensors; ++t)
    self->output_tensors[t].data = NULL;
  if (self->test->operator->shapes(given) != 0 || self->failed)
    return false;
  for (int64_t t = 0; t < self->test->n_output_tensors; ++t) {
    const oneop_tensor *tensor = &self->output_tensors[t];
    bool known = true;
    for (int32_t d = 0; d < tensor->ndim; ++d)
      known = known && tensor->shape[d] != ONEOP_UNKNOWN;
    if (known && !give_memory(self, t)) {
      note(self, "there is no memory for the outputs");
      return false;
    }
  }
  return true;
}

bool run_call(call *self) {
  release_call(self);
  self->failed = false;
  self->message[0] = '\0';
  memset(self->dims, 0, sizeof *self->dims * (size_t)self->test->operator->n_dims);
  const oneop_call given = {self->inputs, self->outputs, self->test->attributes, self->dims, &self->context};
  if (!prepare_outputs(self, &given))
    return false;
  if (self->how.fill_rest) {
    fill_heap(self->how.fill_rest);
    fill_stack(self->how.fill_rest);
  }
  const int status = self->test->run(&given);
  if (self->how.fill_rest)
    fill_heap(0);
  if (status != 0 && !self->failed)
    note(self, "the kernel returned a failure and no message");
  return !self->failed;
}

/* ---- where an address lies ---------------------------------------------------------------------------------------------- */

void number_of(const int64_t count, const oneop_argument *arguments, int64_t flat, int64_t *number, int64_t *tensor) {
  *number = 0;
  *tensor = flat;
  for (; *number < count && *tensor >= arguments[*number].count; ++*number)
    *tensor -= arguments[*number].count;
}

static void consider(place *best, const block *block, const char *address, place_kind kind, int64_t flat,
                     int64_t bits) {
  if (!block->data)
    return;
  const intptr_t from_begin = (intptr_t)address - (intptr_t)block->data;
  const intptr_t from_end = from_begin - (intptr_t)block->size;
  const bool behind = from_end >= 0;
  const intptr_t outside = behind ? from_end : from_begin < 0 ? -from_begin : 0;
  const intptr_t known = best->behind ? best->distance : best->distance < 0 ? -best->distance : 0;
  if (outside > 4096 || (best->found && known <= outside))
    return;
  *best = (place){true, kind, flat, 0, behind ? from_end : from_begin, behind, bits};
}

place place_of(const call *self, const char *address) {
  place best = {0};
  for (int64_t t = 0; t < self->test->n_input_tensors; ++t)
    consider(&best, &self->input_blocks[t], address, INPUT, t, self->input_tensors[t].dtype.bits);
  for (int64_t t = 0; t < self->test->n_output_tensors; ++t)
    consider(&best, &self->output_blocks[t], address, OUTPUT, t, self->output_tensors[t].dtype.bits);
  for (size_t s = 0; s < self->n_scratch; ++s)
    consider(&best, &self->scratch[s], address, SCRATCH, (int64_t)s, 8);
  if (best.found && best.kind == INPUT)
    number_of(self->test->n_inputs, self->inputs, best.number, &best.number, &best.tensor);
  if (best.found && best.kind == OUTPUT)
    number_of(self->test->n_outputs, self->outputs, best.number, &best.number, &best.tensor);
  return best;
}
