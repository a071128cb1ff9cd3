/* Whether a file's HDF5 metadata is what this library writes for these tensors: HDF5 lays them out
 * anew, in memory, and the checksum of the result is compared with that in the user block. HDF5
 * never sees the file, so metadata that was made to mislead it does no harm here. */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "h5/skeleton.h"
#include "step/checkpoint.h"

/* The tables' bytes one after the other, as they are in the file. */
static void fill_tables(const step_file *file, unsigned char **tables, unsigned char *all) {
    const userblock *ub = &file->ub;
    tables[0] = all;
    tables[1] = tables[0] + ub->index.bytes;
    tables[2] = tables[1] + ub->blocks.bytes;
    step_index_encode(file->rows, ub->rows, step_index_path_bytes(file->rows, ub->rows), ub->layout,
                      tables[0]);
    for (uint64_t b = 0; b < ub->blocks.bytes / 8; b++)
        core_put_u64(tables[1] + 8 * b, file->crcs[b]);
    memset(tables[2], ' ', ub->meta.bytes);
    memcpy(tables[2], file->meta, strlen(file->meta));
}

static int same_places(const step_file *file, const index_row *rows, const skeleton *s) {
    for (uint64_t i = 0; i < file->ub.rows; i++)
        if (rows[i].bytes && rows[i].offset != file->rows[i].offset) return 0;
    return s->file_bytes == file->ub.file_bytes;
}

int origin_check(const step_file *file, int *ours, dcp_error *err) {
    const userblock *ub = &file->ub;
    uint64_t bytes = ub->index.bytes + ub->blocks.bytes + ub->meta.bytes, crc = 0;
    unsigned char *all = malloc(bytes + 1), *tables[3];
    index_row *rows = malloc((ub->rows + 1) * sizeof *rows);
    skeleton s = {0};
    int status = DCP_OK;
    *ours = 0;
    if (!all || !rows) {
        status = core_fail_memory(err, bytes + ub->rows * sizeof *rows);
        goto free_all;
    }
    memcpy(rows, file->rows, ub->rows * sizeof *rows);
    if (h5_skeleton_build(rows, ub->rows, ub->layout, ub->meta.bytes, &s, NULL)) goto free_all;
    if (same_places(file, rows, &s)) {
        fill_tables(file, tables, all);
        status = h5_skeleton_outside_crc(&s, rows, ub->rows, (const unsigned char *const *)tables,
                                         &crc, err);
        *ours = !status && crc == ub->outside_crc;
    }
free_all:
    h5_skeleton_free(&s);
    free(all);
    free(rows);
    return status;
}
