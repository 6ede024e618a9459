/* report.c: what was found, as lines of JSON on the standard output, each written at once. */
#include "driver.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What a sanitizer's report may be about. Only the main thread sets it, while no other runs. */
static const call *current;

void set_current(const call *self) { current = self; }

static void write_whole(int file, const char *data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file, data, size);
    if (written < 0 && errno != EINTR)
      give_up("oneop driver: cannot write");
    if (written > 0)
      data += written, size -= (size_t)written;
  }
}

/* Sanitizers write to the same pipe, possibly in the middle of a line of ours if it is long: lines begin with a mark. */
void say(const char *format, ...) {
  char line[8192] = "\n@oneop ";
  const size_t begin = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + begin, sizeof line - begin - 2, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof line - begin - 2)
    give_up("oneop driver: a line of the report is too long");
  line[begin + (size_t)length] = '\n';
  write_whole(STDOUT_FILENO, line, begin + (size_t)length + 1);
}

/* A text as a JSON string, without its quotes; cut where it is long. */
static const char *escaped(const char *text, char *room, size_t size) {
  size_t at = 0;
  for (; *text && at + 7 < size; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      room[at++] = '\\', room[at++] = (char)c;
    else if (c < 0x20)
      at += (size_t)snprintf(room + at, size - at, "\\u%04x", c);
    else
      room[at++] = (char)c;
  }
  room[at] = '\0';
  return room;
}

void say_at(const test_case *test, const char *phase) {
  say("{\"event\": \"at\", \"case\": %lld, \"phase\": \"%s\"}", (long long)test->number, phase);
}

void say_failed(const call *self, const char *phase) {
  char message[4096];
  say("{\"event\": \"failed\", \"case\": %lld, \"phase\": \"%s\", \"message\": \"%s\"}", (long long)self->test->number,
      phase, escaped(self->message, message, sizeof message));
}

static const char *number_text(double value, char room[32]) {
  if (isfinite(value))
    snprintf(room, 32, "%.17g", value);
  else
    snprintf(room, 32, "\"%s\"", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return room;
}

void say_difference(const call *self, const char *property, difference found, const char *about) {
  char first[32], second[32];
  int64_t number, tensor;
  number_of(self->test->n_outputs, self->outputs, found.flat, &number, &tensor);
  say("{\"event\": \"difference\", \"case\": %lld, \"property\": \"%s\", \"about\": \"%s\", \"output\": %lld, "
      "\"tensor\": "
      "%lld, \"shape\": %s, \"element\": %lld, \"elements\": %lld, \"first\": %s, \"second\": %s}",
      (long long)self->test->number, property, about, (long long)number, (long long)tensor,
      found.shape ? "true" : "false", (long long)found.element, (long long)found.elements,
      number_text(found.first, first), number_text(found.second, second));
}

static void say_stray(const call *self, const char *kind, int64_t number, int64_t tensor, stray found, size_t element) {
  say("{\"event\": \"stray\", \"case\": %lld, \"kind\": \"%s\", \"number\": %lld, \"tensor\": %lld, \"side\": \"%s\", "
      "\"distance\": %lld, \"bytes\": %lld, \"element\": %zu}",
      (long long)self->test->number, kind, (long long)number, (long long)tensor, found.before ? "before" : "after",
      (long long)found.distance, (long long)found.bytes, element);
}

static void say_stray_outputs(const call *self) {
  for (int64_t t = 0; t < self->test->n_output_tensors; ++t) {
    const stray found = find_stray(&self->output_blocks[t]);
    int64_t number, tensor;
    number_of(self->test->n_outputs, self->outputs, t, &number, &tensor);
    if (found.found)
      say_stray(self, "output", number, tensor, found, bytes_of(self->output_tensors[t].dtype));
  }
  for (size_t s = 0; s < self->n_scratch; ++s) {
    const stray found = find_stray(&self->scratch[s]);
    if (found.found)
      say_stray(self, "scratch", (int64_t)s, 0, found, 1);
  }
}

/* The first element that is not what it was; -1 where all are. What lies between strides counts as none. */
static int64_t first_changed(const case_tensor *given, const block *block) {
  const size_t size = bytes_of(given->dtype);
  int64_t index[ONEOP_MAX_NDIM] = {0};
  if (!given->strides)
    if (given->bytes == 0 || memcmp(block->data, given->data, (size_t)given->bytes) == 0)
      return -1;
  for (int64_t e = 0; e < given->count; ++e) {
    int64_t at = given->strides ? 0 : e;
    for (int32_t d = 0; given->strides && d < given->ndim; ++d)
      at += index[d] * given->strides[d];
    if (memcmp(block->data + (size_t)at * size, given->data + (size_t)e * size, size) != 0)
      return e;
    for (int32_t d = given->ndim - 1; d >= 0 && ++index[d] == given->shape[d]; --d)
      index[d] = 0;
  }
  return -1;
}

static void say_changed_inputs(const call *self) {
  for (int64_t t = 0; t < self->test->n_input_tensors; ++t) {
    const stray found = find_stray(&self->input_blocks[t]);
    const int64_t element = first_changed(&self->test->tensors[t], &self->input_blocks[t]);
    int64_t number, tensor;
    number_of(self->test->n_inputs, self->inputs, t, &number, &tensor);
    if (found.found)
      say_stray(self, "input", number, tensor, found, bytes_of(self->input_tensors[t].dtype));
    if (element >= 0)
      say("{\"event\": \"changed\", \"case\": %lld, \"input\": %lld, \"tensor\": %lld, \"element\": %lld}",
          (long long)self->test->number, (long long)number, (long long)tensor, (long long)element);
  }
}

void say_strays(const call *self) {
  say_stray_outputs(self);
  say_changed_inputs(self);
}

void say_outputs(driver *self, const test_case *test, const result *result) {
  int64_t flat = 0;
  for (int64_t o = 0; o < test->n_outputs; ++o)
    for (int64_t t = 0; t < test->outputs[o].count; ++t, ++flat) {
      const result_tensor *tensor = &result->tensors[flat];
      char shape[ONEOP_MAX_NDIM * 22 + 1] = "";
      size_t at = 0;
      for (int32_t d = 0; d < tensor->ndim; ++d)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
      say("{\"event\": \"output\", \"case\": %lld, \"output\": %lld, \"tensor\": %lld, \"shape\": [%s], \"offset\": "
          "%lld, "
          "\"bytes\": %zu}",
          (long long)test->number, (long long)o, (long long)t, shape, (long long)self->written, tensor->bytes);
      write_whole(self->outputs, tensor->data, tensor->bytes);
      self->written += (int64_t)tensor->bytes;
    }
}

#ifdef SANITIZED_ADDRESS
#include <sanitizer/asan_interface.h>

/* AddressSanitizer calls this at the end of each of its reports: we know what the address belongs to. */
void __asan_on_error(void);
void __asan_on_error(void) {
  static const char *const kinds[] = {"input", "output", "scratch"};
  if (!current)
    return;
  const place found = place_of(current, __asan_get_report_address());
  if (!found.found)
    return;
  say("{\"event\": \"place\", \"case\": %lld, \"kind\": \"%s\", \"number\": %lld, \"tensor\": %lld, \"distance\": "
      "%lld, "
      "\"behind\": %s, \"bits\": %lld}",
      (long long)current->test->number, kinds[found.kind], (long long)found.number, (long long)found.tensor,
      (long long)found.distance, found.behind ? "true" : "false", (long long)found.bits);
}
#endif
