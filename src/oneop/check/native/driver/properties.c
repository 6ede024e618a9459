/* properties.c: what is asked of a kernel for each case alone. */
#include "driver.h"

#include <stdlib.h>

/* Calls once more, in another way, and compares. */
static bool same_as(const result *expected, const test_case *test, settings how, const char *property,
                    const char *about, bool close) {
  call *self = new_call(test, how);
  set_current(self);
  const bool worked = run_call(self);
  set_current(NULL);
  bool same = worked;
  if (worked) {
    const difference found = compare(expected, self, close);
    say_strays(self);
    if (found.found)
      say_difference(self, property, found, about);
    same = !found.found;
  } else {
    say_failed(self, property);
  }
  free_call(self);
  return same;
}

/* Whether the result depends on what one kind of memory held before. */
static bool depends_on(const result *expected, const test_case *test, settings how) {
  call *self = new_call(test, how);
  const bool differs = !run_call(self) || compare(expected, self, false).found;
  free_call(self);
  return differs;
}

static const char *source_of_difference(const result *expected, const test_case *test, unsigned char fill) {
  settings outputs = PLAIN, scratch = PLAIN, inputs = PLAIN;
  outputs.fill_outputs = fill;
  if (depends_on(expected, test, outputs))
    return "outputs";
  scratch.fill_scratch = fill;
  if (depends_on(expected, test, scratch))
    return "scratch";
  inputs.fill_inputs = fill;
  return depends_on(expected, test, inputs) ? "inputs" : "rest";
}

static bool check_fill(const result *expected, const test_case *test, unsigned char fill) {
  settings how = PLAIN;
  how.fill_outputs = how.fill_scratch = how.fill_inputs = how.fill_rest = fill;
  call *self = new_call(test, how);
  set_current(self);
  bool same = run_call(self);
  set_current(NULL);
  if (!same) {
    say_failed(self, "fills");
  } else {
    const difference found = compare(expected, self, false);
    say_strays(self);
    if (found.found)
      say_difference(self, "fills", found, source_of_difference(expected, test, fill));
    same = !found.found;
  }
  free_call(self);
  return same;
}

static void check_threads(const result *expected, const test_case *test) {
  settings how = PLAIN;
  how.pieces = 7;
  how.backwards = true;
  if (!same_as(expected, test, how, "threads", "pieces in another order", true))
    return;
  how.threads = 4;
  how.pieces = 4;
  how.backwards = false;
  const int rounds = 3;
  for (int r = 0; r < rounds; ++r)
    if (!same_as(expected, test, how, "threads", "4 threads", true))
      return;
}

static void check_more(driver *self, const test_case *test, bool was_parallel) {
  const result *expected = &self->expected[test->number];
  if (self->phases & REPEATED) {
    say_at(test, "repeated");
    self->steady[test->number] = same_as(expected, test, PLAIN, "repeated", "", false);
  }
  if (!self->steady[test->number])
    return; /* whatever else differs may be of the same cause */
  if (self->phases & FILLS) {
    say_at(test, "fills");
    self->steady[test->number] = check_fill(expected, test, SECOND_FILL) && check_fill(expected, test, THIRD_FILL);
  }
  if ((self->phases & THREADS) && was_parallel) {
    say_at(test, "threads");
    check_threads(expected, test);
  }
  if (self->phases & ALIGNMENT) {
    settings how = PLAIN;
    how.shift = 1;
    say_at(test, "alignment");
    same_as(expected, test, how, "alignment", "", true);
  }
}

void check_case(driver *self, const test_case *test) {
  call *first = new_call(test, PLAIN);
  say_at(test, "values");
  set_current(first);
  const bool worked = run_call(first), was_parallel = first->was_parallel;
  set_current(NULL);
  if (worked) {
    self->expected[test->number] = take_result(first);
    self->steady[test->number] = true;
    if (self->phases & VALUES) {
      say_strays(first);
      say_outputs(self, test, &self->expected[test->number]);
    }
  } else {
    say_failed(first, "values");
  }
  free_call(first);
  if (worked)
    check_more(self, test, was_parallel);
  say("{\"event\": \"done\", \"case\": %lld}", (long long)test->number);
}
