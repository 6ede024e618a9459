/* statics.c: the memory of a kernel library that outlives its calls: static and global variables. */
#include "driver.h"

#include <stdlib.h>
#if defined(__linux__)
#include <link.h>
#endif

enum { MOST_REGIONS = 8 };

typedef struct regions {
  uintptr_t inside; /* an address in the library */
  int count;
  const char *at[MOST_REGIONS];
  size_t size[MOST_REGIONS];
} regions;

#if defined(__linux__)
static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
  regions *found = data;
  bool is_it = false;
  (void)size;
  for (int p = 0; p < info->dlpi_phnum; ++p) {
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[p].p_vaddr;
    is_it = is_it || (info->dlpi_phdr[p].p_type == PT_LOAD && found->inside >= begin &&
                      found->inside - begin < info->dlpi_phdr[p].p_memsz);
  }
  for (int p = 0; is_it && p < info->dlpi_phnum && found->count < MOST_REGIONS; ++p)
    if (info->dlpi_phdr[p].p_type == PT_LOAD && (info->dlpi_phdr[p].p_flags & PF_W)) {
      found->at[found->count] = (const char *)(info->dlpi_addr + info->dlpi_phdr[p].p_vaddr);
      found->size[found->count++] = info->dlpi_phdr[p].p_memsz;
    }
  return is_it;
}
#endif

static regions of_library(oneop_function function) {
  regions found = {0};
  memcpy(&found.inside, &function, sizeof found.inside);
#if defined(__linux__)
  dl_iterate_phdr(look_at, &found);
#endif
  return found;
}

bool changes_statics(oneop_function function, void (*work)(void *data), void *data) {
  const regions found = of_library(function);
  if (found.count == 0)
    return true; /* who knows */
  char *copies[MOST_REGIONS];
  bool changed = false;
  for (int r = 0; r < found.count; ++r) {
    copies[r] = allocate(1, found.size[r]);
    memcpy(copies[r], found.at[r], found.size[r]);
  }
  work(data);
  for (int r = 0; r < found.count; ++r) {
    changed = changed || memcmp(copies[r], found.at[r], found.size[r]) != 0;
    free(copies[r]);
  }
  return changed;
}
