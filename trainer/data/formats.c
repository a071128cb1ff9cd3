#include "data/formats.h"

#include <string.h>

enum { FEWEST_IDS = 128 }; /* that tell a width */

#define LLM_C "a file of llm.c's, which begins with a header of 1,024 bytes"
#define LLM_C_ADVICE                                                                               \
    "write the ids behind it alone (tail -c +1025), of 2 bytes for GPT-2 and 4 for Llama 3"

static const struct {
    const char *mark;
    size_t bytes;
    data_format format;
} formats[] = {
    {"\x93NUMPY",
     6,
     {"an array of numpy's (.npy)",
      "write its ids alone, as numpy.load(f).astype('uint16').tofile('ids.bin') does"}},
    {"PK\3\4", 4, {"a zip archive (.npz, .pt)", "unpack it, and write the ids alone"}},
    {"\x1f\x8b\x08", 3, {"compressed by gzip", "unpack it"}},
    {"\x28\xb5\x2f\xfd", 4, {"compressed by zstd", "unpack it"}},
    {"MMIDIDX", 7, {"an index of Megatron's (.idx)", "give the .bin file beside it alone"}},
    {"\x88\xd8\x34\x01", 4, {LLM_C, LLM_C_ADVICE}}, /* 20240520, of GPT-2's ids */
    {"\xa1\xd9\x34\x01", 4, {LLM_C, LLM_C_ADVICE}}, /* 20240801, of Llama 3's */
    {"PAR1", 4, {"a parquet file", "write the ids alone"}},
    {"ARROW1", 6, {"an Arrow file", "write the ids alone"}},
    {"\x89HDF\r\n\x1a\n", 8, {"an HDF5 file", "write the ids alone"}},
};

const data_format *data_formats_find(const uint8_t *begin, uint64_t bytes) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (bytes >= formats[i].bytes && memcmp(begin, formats[i].mark, formats[i].bytes) == 0)
            return &formats[i].format;
    return NULL;
}

/* Whether of each `wide` bytes those behind the first `width` are zero, and not all the others. */
static int is_padded(const uint8_t *ids, uint64_t bytes, uint32_t width, uint32_t wide) {
    int some = 0;
    for (uint64_t i = 0; i < bytes - bytes % wide; i++) {
        if (i % wide < width)
            some |= ids[i];
        else if (ids[i])
            return 0;
    }
    return some;
}

uint32_t data_formats_width(const uint8_t *ids, uint64_t bytes, uint32_t width) {
    if (bytes < (uint64_t)FEWEST_IDS * width) return width;
    for (uint32_t wide = 4 * width; wide > width; wide /= 2)
        if (wide <= 8 && is_padded(ids, bytes, width, wide)) return wide;
    return width;
}
