/* Files that are no plain ids, though they are found where such are expected. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct data_format {
    const char *what;   /* "an array of numpy's (.npy)" */
    const char *advice; /* what makes ids of it */
} data_format;

/* The format whose mark the file's first bytes are; NULL: none that is known. */
const data_format *data_formats_find(const uint8_t *begin, uint64_t bytes);

/* The width of the ids that lie there, where ids of `width` bytes would have zeros between them:
 * little-endian ones of 2 or 4 times as many bytes. `width` where they may be such; a few ids tell
 * nothing. */
uint32_t data_formats_width(const uint8_t *ids, uint64_t bytes, uint32_t width);
