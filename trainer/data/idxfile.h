/* Files of the IDX format, as MNIST has them, read as one array: 00 00, a type, the number of
 * dimensions, each dimension as a big-endian u32, the first one counting items; then the elements,
 * big-endian, row-major. */
#ifndef TRAINER_DATA_IDXFILE_H
#define TRAINER_DATA_IDXFILE_H

#include "data/files.h"

enum { IDX_MAX_DIMS = 4 };

typedef enum idx_type {
    IDX_U8 = 0x08,
    IDX_I8 = 0x09,
    IDX_I16 = 0x0b,
    IDX_I32 = 0x0c,
    IDX_F32 = 0x0d,
    IDX_F64 = 0x0e,
} idx_type;

typedef struct idx_part {
    uint64_t first, items; /* numbers of its items in the whole */
    uint64_t begin;        /* offset of its first element in files */
} idx_part;

typedef struct idx_array {
    data_files files;
    idx_part *parts; /* [files.n] */
    uint64_t items;
    idx_type type;
    uint32_t ndim; /* of an item; all files have the same */
    uint64_t dims[IDX_MAX_DIMS];
    uint64_t item_bytes;
} idx_array;

/* Reads and checks the headers of a->files, which stay the array's: sizes, types and dimensions are
 * hostile until they agree with the files' sizes and with each other. */
int idx_open(idx_array *a, dcp_error *err);
void idx_close(idx_array *a);

/* Which file item number `item` lies in, and its offset there. */
const char *idx_at(const idx_array *a, uint64_t item, uint64_t *within);

/* n items as they are in the files: [n, item_bytes]; they lie in one file. */
int idx_read(idx_array *a, uint64_t item, uint64_t n, void *out, dcp_error *err);

int idx_is_integer(idx_type type);
uint32_t idx_type_bytes(idx_type type);
int64_t idx_integer(idx_type type, const uint8_t *element);
/* u8 is scaled to [0, 1]; all else is the number itself. */
float idx_float(idx_type type, const uint8_t *element);

#endif
