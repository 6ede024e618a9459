/* blocks.c: memory between red zones. Under AddressSanitizer a block is as large as what it holds, and not a byte more:
 * the sanitizer's own red zones are finer, and know the line that touches them. */
#include "driver.h"

#include <stdlib.h>

enum { ALIGNMENT_OF_BLOCKS = 64 };

#ifndef SANITIZED_ADDRESS
enum { SMALLEST_ZONE = 4096, LARGEST_ZONE = 1 << 20 };

static size_t up(size_t size) { return (size + ALIGNMENT_OF_BLOCKS - 1) / ALIGNMENT_OF_BLOCKS * ALIGNMENT_OF_BLOCKS; }

/* As large as the block itself within bounds: somebody may be wrong by a whole row. */
static size_t zone(size_t size) {
  return up(size < SMALLEST_ZONE ? SMALLEST_ZONE : size > LARGEST_ZONE ? LARGEST_ZONE : size);
}
#endif

block new_block(size_t size, size_t shift, unsigned char fill) {
  block self = {.size = size, .fill = fill};
#ifdef SANITIZED_ADDRESS
  /* Empty data is the end of a block, so that reading it is found. */
  const size_t before = size ? shift : ALIGNMENT_OF_BLOCKS;
  self.before = self.total = 0;
  if (posix_memalign((void **)&self.base, ALIGNMENT_OF_BLOCKS, before + size) != 0)
    self.base = NULL;
  if (!self.base)
    return self;
  memset(self.base, fill, before + size);
  self.data = self.base + before;
#else
  if (size > SIZE_MAX / 4)
    return self;
  self.before = zone(size) + shift;
  self.total = up(self.before + size + zone(size));
  self.base = aligned_alloc(ALIGNMENT_OF_BLOCKS, self.total);
  if (!self.base)
    return self;
  memset(self.base, fill, self.total);
  self.data = self.base + self.before;
#endif
  return self;
}

void free_block(block *self) {
  free(self->base);
  *self = (block){0};
}

stray find_stray(const block *self) {
  stray found = {0};
  if (!self->base || self->total == 0)
    return found;
  for (size_t at = 0; at < self->total; ++at) {
    if (at == self->before)
      at += self->size;
    if (at >= self->total || (unsigned char)self->base[at] == self->fill)
      continue;
    const bool before = at < self->before;
    const int64_t distance = before ? (int64_t)(self->before - at) : (int64_t)(at - self->before - self->size);
    ++found.bytes;
    if (!found.found || distance < found.distance)
      found.distance = distance, found.before = before;
    found.found = true;
  }
  return found;
}
