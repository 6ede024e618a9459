/* together.c: what is asked of a kernel over many calls: eight callers at once, and memory that does not grow. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#else
#include <sys/resource.h>
#endif

enum {
  FEW_TIMES = 12,
  MANY_TIMES = 300,
  CALLERS_AT_ONCE = 8,
  CASES_AT_ONCE = 8,
  LARGEST_TOGETHER = 1 << 18,
  CASES_OVER_TIME = 8,
  MOST_CALLS = 2000
};

#ifndef SANITIZED_THREAD
static const double SECONDS_BEHIND = 0.1, SECONDS_OF_INTERRUPTIONS = 5;
#endif
static const double SECONDS_OVER_TIME = 0.02;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int64_t bytes_of_case(const driver *self, const test_case *test) {
  int64_t bytes = 0;
  for (int64_t t = 0; t < test->n_input_tensors; ++t)
    bytes += test->tensors[t].bytes;
  for (int64_t t = 0; t < self->expected[test->number].count; ++t)
    bytes += (int64_t)self->expected[test->number].tensors[t].bytes;
  return bytes;
}

static bool can_be_chosen(const driver *self, const test_case *test, const oneop_operator *operator) {
  if (test->operator != operator || !self->expected[test->number].tensors || !self->steady[test->number])
    return false;
  const int64_t bytes = bytes_of_case(self, test); /* without any it is no test */
  return bytes > 0 && bytes <= LARGEST_TOGETHER;
}

/* Cases of one operator that worked, spread over all of them, at most `limit`. */
static int64_t choose_some(const driver *self, const oneop_operator *operator, const test_case **chosen,
                           int64_t limit) {
  int64_t found = 0, seen = 0, total = 0;
  for (int64_t c = 0; c < self->cases.count; ++c)
    total += can_be_chosen(self, &self->cases.list[c], operator);
  for (int64_t c = 0; c < self->cases.count && found < limit; ++c) {
    if (!can_be_chosen(self, &self->cases.list[c], operator))
      continue;
    if (total <= limit || seen * limit / total >= found)
      chosen[found++] = &self->cases.list[c];
    ++seen;
  }
  return found;
}

/* The largest of them: the longer a kernel runs, the likelier two of its calls meet. */
static int64_t choose_largest(const driver *self, const oneop_operator *operator, const test_case **chosen,
                              int64_t limit) {
  int64_t found = 0;
  for (int64_t c = 0; c < self->cases.count; ++c) {
    const test_case *test = &self->cases.list[c];
    if (!can_be_chosen(self, test, operator))
      continue;
    int64_t at = found < limit ? found++ : limit;
    while (at > 0 && bytes_of_case(self, chosen[at - 1]) < bytes_of_case(self, test)) {
      if (at < limit)
        chosen[at] = chosen[at - 1];
      --at;
    }
    if (at < limit)
      chosen[at] = test;
  }
  return found;
}

/* ---- eight callers at once --------------------------------------------------------------------------------------------- */

typedef struct caller {
  const driver *driver;
  int64_t number, count;
  call *calls[CASES_AT_ONCE];
  atomic_int *waiting;
  const call *wrong;
  difference found;
} caller;

/* All relaxed: they must put the callers in no order, or ThreadSanitizer would take that for the kernel's. */
static atomic_long finished; /* calls, of all callers */
#ifndef SANITIZED_THREAD
static atomic_long answered;  /* interruptions */
static atomic_long overtaken; /* those in a call, during which the others did call */
#endif
static atomic_bool enough, is_wrong;
static _Atomic(const test_case *) avoided; /* what the caller that stays behind is at */
static _Thread_local const test_case *volatile mine_now;

static call *next_call(const caller *self, int64_t round) {
  const test_case *other = atomic_load_explicit(&avoided, memory_order_relaxed);
  for (int64_t i = 0; i < self->count; ++i) {
    call *found = self->calls[(self->number + round + i) % self->count];
    if (found->test != other)
      return found;
  }
  return self->calls[0];
}

static void *call_repeatedly(void *given) {
  caller *self = given;
  atomic_fetch_sub(self->waiting, 1);
  while (atomic_load(self->waiting) > 0)
    sched_yield();
  for (int64_t round = 0; round < self->count || !atomic_load_explicit(&enough, memory_order_relaxed); ++round) {
    call *mine = next_call(self, round);
    mine_now = mine->test;
    const bool worked = run_call(mine);
    mine_now = NULL;
    if (worked)
      self->found = compare(&self->driver->expected[mine->test->number], mine, true);
    if (!worked || self->found.found) {
      self->wrong = mine;
      atomic_store_explicit(&is_wrong, true, memory_order_relaxed);
      break;
    }
    atomic_fetch_add_explicit(&finished, 1, memory_order_relaxed);
  }
  return NULL;
}

#ifndef SANITIZED_THREAD /* which sees what two threads share without their meeting */
/* Threads seldom meet inside a kernel by themselves, least of all on a busy machine. So each is interrupted now and then,
 * wherever it is, and goes on once others have called with other arguments: what it left in shared memory is then theirs. */
static void stay_behind(int number) {
  (void)number;
  const int kept = errno;
  const double end = now() + SECONDS_BEHIND;
  const long wanted = atomic_load_explicit(&finished, memory_order_relaxed) + 2 * CALLERS_AT_ONCE;
  if (mine_now) { /* not between two calls */
    atomic_store_explicit(&avoided, mine_now, memory_order_relaxed);
    while (atomic_load_explicit(&finished, memory_order_relaxed) < wanted && now() < end)
      sched_yield();
    atomic_store_explicit(&avoided, NULL, memory_order_relaxed);
    if (atomic_load_explicit(&finished, memory_order_relaxed) >= wanted)
      atomic_fetch_add_explicit(&overtaken, 1, memory_order_relaxed);
  }
  atomic_fetch_add_explicit(&answered, 1, memory_order_relaxed);
  errno = kept;
}

static void call_once(void *given) { run_call(given); }
#endif

/* Whether one of these calls leaves something behind in the library. ThreadSanitizer needs no such hint. */
static bool leaves_something(const caller *self) {
#ifndef SANITIZED_THREAD
  for (int64_t i = 0; i < self->count; ++i)
    if (changes_statics(self->calls[i]->test->run, call_once, self->calls[i]))
      return true;
#endif
  (void)self;
  return false;
}

static void pause_for(long microseconds) {
  const struct timespec moment = {0, microseconds * 1000};
  nanosleep(&moment, NULL);
}

/* One thread after the other, until enough of them were overtaken or one is wrong. */
static void interrupt(const test_case *test, const pthread_t *threads, int count, long times) {
#ifndef SANITIZED_THREAD
  const double end = now() + SECONDS_OF_INTERRUPTIONS;
  struct sigaction action = {.sa_handler = stay_behind, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, NULL);
  atomic_store(&overtaken, 0);
  for (int i = 0; count > 0 && now() < end && !atomic_load(&is_wrong) && atomic_load(&overtaken) < times; ++i) {
    const long before = atomic_load(&answered);
    const double patience = now() + 2 * SECONDS_BEHIND;
    pause_for(200);
    pthread_kill(threads[i % count], SIGUSR1);
    while (atomic_load(&answered) == before && now() < patience && !atomic_load(&is_wrong))
      pause_for(50);
    if (i % 32 == 31)
      say_at(test, "callers"); /* a busy machine takes its time; this is no kernel that hangs */
  }
#else
  (void)test, (void)threads, (void)count, (void)times;
  pause_for(50000);
#endif
  atomic_store_explicit(&enough, true, memory_order_relaxed);
}

/* Their arguments differ, so that what they share by mistake shows. */
static void check_callers(driver *self, const oneop_operator *operator) {
  const test_case *chosen[CASES_AT_ONCE];
  const int64_t count = choose_largest(self, operator, chosen, CASES_AT_ONCE);
  if (count == 0)
    return;
  say_at(chosen[0], "callers");
  caller callers[CALLERS_AT_ONCE];
  pthread_t threads[CALLERS_AT_ONCE];
  atomic_int waiting;
  settings how = PLAIN;
  how.fill_rest = 0; /* which is one for the whole process */
  atomic_init(&waiting, CALLERS_AT_ONCE);
  for (int64_t c = 0; c < CALLERS_AT_ONCE; ++c) {
    callers[c] = (caller){.driver = self, .number = c, .count = count, .waiting = &waiting};
    for (int64_t i = 0; i < count; ++i)
      callers[c].calls[i] = new_call(chosen[i], how);
  }
  const bool suspicious = leaves_something(&callers[0]);
  int started = 0;
  atomic_store(&enough, false);
  atomic_store(&is_wrong, false);
  while (started < CALLERS_AT_ONCE && pthread_create(&threads[started], NULL, call_repeatedly, &callers[started]) == 0)
    ++started;
  atomic_fetch_sub(&waiting, CALLERS_AT_ONCE - started);
  interrupt(chosen[0], threads, started, suspicious ? MANY_TIMES : FEW_TIMES);
  for (int t = 0; t < started; ++t)
    pthread_join(threads[t], NULL);
  const caller *wrong = NULL;
  for (int64_t c = 0; c < CALLERS_AT_ONCE && !wrong; ++c)
    wrong = callers[c].wrong ? &callers[c] : NULL;
  if (wrong && wrong->wrong->failed)
    say_failed(wrong->wrong, "callers");
  else if (wrong)
    say_difference(wrong->wrong, "callers", wrong->found, "8 callers");
  for (int64_t c = 0; c < CALLERS_AT_ONCE; ++c)
    for (int64_t i = 0; i < count; ++i)
      free_call(callers[c].calls[i]);
}

/* ---- memory that does not grow ------------------------------------------------------------------------------------------- */

/* Bytes that are allocated now; where the C library cannot say, the most memory that the process has had. */
static int64_t allocated(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 info = mallinfo2();
  return (int64_t)(info.uordblks + info.hblkhd);
#elif defined(__GLIBC__)
  const struct mallinfo info = mallinfo();
  return (int64_t)(unsigned)info.uordblks + (int64_t)(unsigned)info.hblkhd;
#else
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return (int64_t)usage.ru_maxrss;
#else
  return (int64_t)usage.ru_maxrss * 1024;
#endif
#endif
}

/* The lowest number of a file that can be opened: it grows where files are left open. */
static int next_file(void) {
  const int file = open("/dev/null", O_RDONLY);
  if (file >= 0)
    close(file);
  return file;
}

static int64_t growth_over(call *self, int64_t calls) {
  const int64_t before = allocated();
  for (int64_t i = 0; i < calls; ++i) {
    run_call(self);
    release_call(self);
  }
  return allocated() - before;
}

static void check_growth(const test_case *test) {
  settings how = PLAIN;
  how.fill_rest = 0;
  say_at(test, "memory");
  call *self = new_call(test, how);
  const int64_t trial = 16;
  growth_over(self, trial); /* what is allocated once */
  const double begin = now();
  growth_over(self, trial);
  const double each = (now() - begin) / (double)trial;
  int64_t calls = each > 0 ? (int64_t)(SECONDS_OVER_TIME / each) : MOST_CALLS;
  calls = calls > MOST_CALLS ? MOST_CALLS : calls < trial ? trial : calls;
  const int files = next_file();
  const int64_t first = growth_over(self, calls), second = growth_over(self, calls), least = 8 * calls;
  const int next = next_file(), left_open = next < 0 ? (int)(2 * calls) : next - files; /* no more can be opened */
  if ((first >= least && second >= least) || left_open != 0)
    say("{\"event\": \"growth\", \"case\": %lld, \"bytes\": %lld, \"calls\": %lld, \"files\": %d}",
        (long long)test->number, (long long)(first + second), (long long)(2 * calls), left_open);
  free_call(self);
}

static void check_memory(driver *self, const oneop_operator *operator) {
  const test_case *chosen[CASES_OVER_TIME];
  const int64_t count = choose_some(self, operator, chosen, CASES_OVER_TIME);
  for (int64_t c = 0; c < count; ++c)
    check_growth(chosen[c]);
}

void check_together(driver *self) {
  for (int64_t c = 0; c < self->cases.count; ++c) {
    const oneop_operator *operator = self->cases.list[c].operator;
    bool is_first = true;
    for (int64_t earlier = 0; earlier < c; ++earlier)
      is_first = is_first && self->cases.list[earlier].operator != operator;
    if (!is_first)
      continue;
    if (self->phases & MEMORY) /* first: whoever leaves files open can open none after many calls */
      check_memory(self, operator);
    if (self->phases & CALLERS)
      check_callers(self, operator);
  }
}
