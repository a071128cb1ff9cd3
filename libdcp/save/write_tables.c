/* Each table lies on pages of its own. */
#include "save/write_tables.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"

/* Page-aligned and zeroed up to whole pages. */
static unsigned char *table_memory(uint64_t bytes) {
    void *memory;
    uint64_t size = core_round_to_pages(bytes ? bytes : 1);
    if (posix_memalign(&memory, PAGE_BYTES, size)) return NULL;
    return memset(memory, 0, size);
}

/* Raw sums of blocks become checksums of blocks and of rows. */
static void fill_blocks(const save_image *im, step_row *rows, unsigned char *blocks) {
    uint64_t *crcs = im->sums;
    for (size_t i = 0; i < im->layout->n; i++) {
        uint64_t *row = crcs + rows[i].first_block;
        for (uint64_t b = 0; b < step_index_blocks(rows[i].bytes); b++) {
            row[b] = core_crc64_finish(row[b], step_index_block_bytes(rows[i].bytes, b));
            core_put_u64(blocks + 8 * (rows[i].first_block + b), row[b]);
        }
        rows[i].crc = step_index_join_blocks(row, rows[i].bytes);
    }
}

static void write_table(const save_image *im, io_queue *queue, const step_range *range,
                        const unsigned char *data) {
    uint64_t total = core_round_to_pages(range->bytes);
    for (uint64_t at = 0; at < total; at += IO_SLOT_BYTES) {
        uint64_t part = total - at < IO_SLOT_BYTES ? total - at : IO_SLOT_BYTES;
        io_queue_write(queue, io_queue_next(queue), &im->file, data + at, part, range->offset + at);
    }
}

static int build(const save_image *im, step_row *rows, unsigned char *const *tables,
                 unsigned char *block, step_userblock *ub, dcp_error *err) {
    const save_file *f = im->layout;
    uint64_t path_bytes = step_index_path_bytes(rows, f->n);
    fill_blocks(im, rows, tables[1]);
    step_index_encode(rows, f->n, path_bytes, f->layout, tables[0]);
    memset(tables[2], ' ', ub->meta.bytes);
    memcpy(tables[2], im->meta, strlen(im->meta));
    ub->rows = f->n;
    ub->row_bytes = step_index_row_bytes(path_bytes, f->layout);
    step_range *ranges[] = {&ub->index, &ub->blocks, &ub->meta};
    for (int t = 0; t < 3; t++) {
        if (!ranges[t]->bytes) ranges[t]->offset = USERBLOCK_BYTES; /* an empty table is nowhere */
        ranges[t]->crc = core_crc64(tables[t], ranges[t]->bytes);
    }
    int status = h5_skeleton_outside_crc(
        &f->skeleton, rows, f->n, (const unsigned char *const *)tables, &ub->outside_crc, err);
    if (!status) step_userblock_encode(ub, block);
    return status;
}

int save_tables_write(const save_image *im, io_queue *queue, dcp_error *err) {
    const h5_skeleton *s = &im->layout->skeleton;
    step_userblock ub = {.layout = im->layout->layout,
                         .file_bytes = s->file_bytes,
                         .index = s->index,
                         .blocks = s->blocks,
                         .meta = s->meta};
    unsigned char *tables[] = {table_memory(ub.index.bytes), table_memory(ub.blocks.bytes),
                               table_memory(ub.meta.bytes)};
    unsigned char *block = table_memory(USERBLOCK_BYTES);
    int status = DCP_OK;
    if (!tables[0] || !tables[1] || !tables[2] || !block)
        status = core_fail_memory(err, ub.index.bytes + ub.blocks.bytes + ub.meta.bytes);
    else
        status = build(im, im->layout->rows, tables, block, &ub, err);
    if (!status) {
        write_table(im, queue, &ub.index, tables[0]);
        write_table(im, queue, &ub.blocks, tables[1]);
        write_table(im, queue, &ub.meta, tables[2]);
        write_table(im, queue, &(step_range){0, USERBLOCK_BYTES, 0}, block);
        io_queue_drain(queue);
        status = io_queue_status(queue, err);
    }
    for (int t = 0; t < 3; t++) free(tables[t]);
    free(block);
    return status;
}
