#include "stored.h"

#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "heap.h"
#include "reader/checkpoint.h"
#include "world.h"

#define HEAD_BYTES (8 + USERBLOCK_BYTES)

/* The tables of a file of which `ub` has sizes and places; checksums are those of no data. */
static unsigned char *pack(const format_row *rows, format_userblock *ub, uint64_t path_bytes,
                           const char *json, uint64_t *bytes) {
    *bytes = HEAD_BYTES + ub->index.bytes + ub->blocks.bytes + ub->meta.bytes;
    unsigned char *packed = calloc(*bytes, 1);
    NEED(packed);
    unsigned char *index = packed + HEAD_BYTES, *blocks = index + ub->index.bytes,
                  *meta = blocks + ub->blocks.bytes;
    format_index_encode(rows, ub->rows, path_bytes, ub->layout, index);
    memset(meta, ' ', ub->meta.bytes);
    memcpy(meta, json, strlen(json));
    ub->row_bytes = format_index_row_bytes(path_bytes, ub->layout);
    ub->index.crc = core_crc64(index, ub->index.bytes);
    ub->blocks.crc = core_crc64(blocks, ub->blocks.bytes);
    ub->meta.crc = core_crc64(meta, ub->meta.bytes);
    core_put_u64(packed, ub->file_bytes);
    format_userblock_encode(ub, packed + 8);
    return packed;
}

void stored_make(stored *s, const save_file *file) {
    format_userblock ub = {.layout = DCP_LAYOUT_GLOBAL,
                           .file_bytes = file->skeleton.file_bytes,
                           .rows = file->n,
                           .index = file->skeleton.index,
                           .blocks = file->skeleton.blocks,
                           .meta = file->skeleton.meta};
    s->packed = pack(file->rows, &ub, format_index_path_bytes(file->rows, file->n),
                     "{\"format\":1,\"step\":1}", &s->bytes);
}

/* Tables first, then the shard's boxes on pages of their own. */
static unsigned char *pack_shard(const stored *s, int number, uint64_t *bytes) {
    format_row *rows = calloc(s->n, sizeof *rows);
    dcp_box *boxes = calloc(s->n, sizeof *boxes);
    NEED(rows && boxes);
    format_userblock ub = {.layout = DCP_LAYOUT_SHARDED, .rows = s->n};
    for (size_t i = 0; i < s->n; i++) {
        const dcp_tensor *t = &s->sorted[i]->tensor;
        boxes[i] = dcp_box_chunk(t, number, s->shards);
        rows[i] = (format_row){.tensor = *t, .box = &boxes[i]};
        rows[i].bytes = dcp_box_elems(&boxes[i], t->ndim) * dcp_dtype_bytes(t->dtype);
        ub.blocks.bytes += 8 * format_index_blocks(rows[i].bytes);
    }
    uint64_t path_bytes = format_index_path_bytes(rows, s->n), at = 2 * PAGE_BYTES;
    ub.index = (format_range){at, s->n * format_index_row_bytes(path_bytes, ub.layout), 0};
    ub.blocks.offset = at += (ub.index.bytes / PAGE_BYTES + 1) * PAGE_BYTES;
    ub.meta = (format_range){at += (ub.blocks.bytes / PAGE_BYTES + 1) * PAGE_BYTES, 65536, 0};
    at += ub.meta.bytes;
    for (size_t i = 0; i < s->n; i++) {
        rows[i].offset = at;
        at += (rows[i].bytes / PAGE_BYTES + 1) * PAGE_BYTES;
    }
    ub.file_bytes = at;
    char json[160];
    snprintf(json, sizeof json,
             "{\"format\":1,\"shard\":{\"rank\":%d,\"state_id\":\"0123456789abcdef\",\"world\":%d},"
             "\"step\":1}",
             number, s->shards);
    unsigned char *packed = pack(rows, &ub, path_bytes, json, bytes);
    free(rows);
    free(boxes);
    return packed;
}

static void must(int status, const dcp_error *err) {
    if (status) fprintf(stderr, "%s\n", err->message);
    NEED(!status);
}

static void open_file(const stored *s, format_file *file, int number, planned_cost *cost) {
    dcp_error err = {0};
    uint64_t bytes = s->bytes;
    unsigned char *packed = s->shards ? pack_shard(s, number, &bytes) : s->packed;
    *file = format_file_of(strdup("step-00000001/file"));
    double start = planned_clock_ms();
    must(format_tables_unpack(file, packed, bytes, 0, &err), &err);
    cost->cpu_ms += planned_clock_ms() - start;
    if (s->shards) free(packed);
}

dcp_checkpoint *stored_open(const stored *s, dcp_comm *comm, planned_cost *cost) {
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    dcp_error err = {0};
    NEED(ckpt);
    *cost = (planned_cost){0};
    *ckpt = (dcp_checkpoint){.comm = comm,
                             .path = strdup("step-00000001"),
                             .layout = s->shards ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL,
                             .n_files = s->shards ? (size_t)s->shards : 1};
    heap_start();
    ckpt->files = calloc(ckpt->n_files, sizeof *ckpt->files);
    NEED(ckpt->files);
    for (size_t f = 0; f < ckpt->n_files; f++) open_file(s, &ckpt->files[f], (int)f, cost);
    double start = planned_clock_ms();
    must(reader_join_files(ckpt, &err), &err);
    cost->cpu_ms += planned_clock_ms() - start;
    cost->peak_bytes = heap_now();
    return ckpt;
}
