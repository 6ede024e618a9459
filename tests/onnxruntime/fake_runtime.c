/* fake_runtime.c: an ONNX Runtime that is too old, just enough of it for RegisterCustomOps to be called. C11.
 *
 *   fake_runtime LIBRARY RELEASE NEWEST
 * loads the library and registers it with a runtime of that release, whose API ends at version NEWEST. Prints the message
 * of the status, and "registered" or "refused". */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*entry)(void);
typedef struct base {
  const entry *(*get_api)(uint32_t version);
  const char *(*version)(void);
} base;

static const char *release;
static uint32_t newest;

static void *create_status(int code, const char *message) {
  printf("status %d: %s\n", code, message);
  return &newest; /* any address: nobody looks into a status here */
}

static const entry *get_api(uint32_t version) {
  static const entry api[1] = {(entry)create_status};
  if (version > newest)
    printf("asked for version %u\n", (unsigned)version);
  return version <= newest ? api : NULL;
}

static const char *get_version(void) { return release; }

int main(int count, char **arguments) {
  if (count != 4)
    return 2;
  release = arguments[2];
  newest = (uint32_t)atoi(arguments[3]);
  void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  void *found = dlsym(library, "RegisterCustomOps");
  const base runtime = {get_api, get_version};
  const void *status = found == NULL ? NULL : ((const void *(*)(void *, const base *))found)(NULL, &runtime);
  puts(status == NULL ? "registered" : "refused");
  return 0;
}
