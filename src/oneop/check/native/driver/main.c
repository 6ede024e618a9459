/* main.c: oneop_driver LIBRARY CASES OUTPUTS PHASES FIRST
 *
 * Calls the cases from number FIRST on, asks the questions whose bits are set in PHASES (driver.h), writes the outputs'
 * bytes to the end of the file OUTPUTS and a report, lines of JSON, to the standard output.
 *
 * oneop_driver --fixed-addresses PROGRAM ARGUMENTS... runs another program without random addresses, which
 * ThreadSanitizer asks for on some kernels of Linux.
 */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/personality.h>
#endif

static int run_with_fixed_addresses(char **command) {
#if defined(__linux__)
  if (personality(ADDR_NO_RANDOMIZE) == -1)
    give_up("this system does not let a program choose its addresses: personality: %s", strerror(errno));
#endif
  execv(command[0], command);
  give_up("%s cannot be run: %s", command[0], strerror(errno));
}

static const oneop_library *open_library(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    give_up("%s cannot be loaded: %s", path, dlerror());
  oneop_library_function function;
  *(void **)(void *)&function = dlsym(handle, ONEOP_LIBRARY_SYMBOL);
  if (!function)
    give_up("%s is no kernel library: %s", path, dlerror());
  const oneop_library *library = function();
  if (library->abi_version != ONEOP_ABI_VERSION)
    give_up("%s has ABI version %u; this program has %d", path, library->abi_version, ONEOP_ABI_VERSION);
  return library;
}

int main(int count, char **arguments) {
  if (count > 2 && strcmp(arguments[1], "--fixed-addresses") == 0)
    return run_with_fixed_addresses(arguments + 2);
  if (count != 6)
    give_up("usage: oneop_driver LIBRARY CASES OUTPUTS PHASES FIRST");
  static driver self; /* static, so that no leak is seen in what it holds */
  self.phases = atoi(arguments[4]);
  self.cases = read_cases(arguments[2], open_library(arguments[1]));
  self.outputs = open(arguments[3], O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (self.outputs < 0)
    give_up("%s cannot be written: %s", arguments[3], strerror(errno));
  self.written = (int64_t)lseek(self.outputs, 0, SEEK_END);
  self.expected = allocate((size_t)self.cases.count, sizeof *self.expected);
  self.steady = allocate((size_t)self.cases.count, sizeof *self.steady);
  say("{\"event\": \"begin\"}");
  for (int64_t c = atoll(arguments[5]); c < self.cases.count; ++c)
    check_case(&self, &self.cases.list[c]);
  check_together(&self);
  say("{\"event\": \"end\"}");
  return 0;
}
