/* The user block. Its own checksum is checked first; nothing else in it is used before that. */
#include "step/userblock.h"

#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"

static const unsigned char magic[8] = {0x89, 'D', 'C', 'P', '\r', '\n', 0x1a, '\n'};

enum { /* byte offsets */
       AT_VERSION = 8,
       AT_LAYOUT = 12,
       AT_FILE = 16,
       AT_ROWS = 24,
       AT_ROW = 32,
       AT_INDEX = 40,
       AT_BLOCKS = 64,
       AT_META = 88,
       AT_OUTSIDE = 112,
       AT_UNUSED = 120,
       AT_CRC = USERBLOCK_BYTES - 8,
};

static void put_range(unsigned char *p, const step_range *r) {
    core_put_u64(p, r->offset);
    core_put_u64(p + 8, r->bytes);
    core_put_u64(p + 16, r->crc);
}

static step_range get_range(const unsigned char *p) {
    return (step_range){core_get_u64(p), core_get_u64(p + 8), core_get_u64(p + 16)};
}

void step_userblock_encode(const step_userblock *ub, unsigned char *out) {
    memset(out, 0, USERBLOCK_BYTES);
    memcpy(out, magic, sizeof magic);
    core_put_u32(out + AT_VERSION, FORMAT_VERSION);
    core_put_u32(out + AT_LAYOUT, (uint32_t)ub->layout);
    core_put_u64(out + AT_FILE, ub->file_bytes);
    core_put_u64(out + AT_ROWS, ub->rows);
    core_put_u64(out + AT_ROW, ub->row_bytes);
    put_range(out + AT_INDEX, &ub->index);
    put_range(out + AT_BLOCKS, &ub->blocks);
    put_range(out + AT_META, &ub->meta);
    core_put_u64(out + AT_OUTSIDE, ub->outside_crc);
    core_put_u64(out + AT_CRC, core_crc64(out, AT_CRC));
}

static int in_file(const step_range *r, uint64_t file_bytes) {
    return r->offset >= USERBLOCK_BYTES && r->offset % PAGE_BYTES == 0 && r->offset <= file_bytes &&
           r->bytes <= file_bytes - r->offset;
}

static int overlap(const step_range *a, const step_range *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* What contradicts itself; NULL: nothing. */
static const char *sizes_wrong(const step_userblock *ub) {
    uint64_t rows_bytes, blocks = ub->blocks.bytes / 8;
    if (ub->file_bytes % PAGE_BYTES) return "the file's size is no multiple of a page";
    if (ub->file_bytes > MAX_FILE_BYTES) return "no file is that large";
    if (!in_file(&ub->index, ub->file_bytes)) return "the index lies outside the file";
    if (!in_file(&ub->blocks, ub->file_bytes)) return "the blocks table lies outside the file";
    if (!in_file(&ub->meta, ub->file_bytes)) return "meta lies outside the file";
    if (overlap(&ub->index, &ub->blocks) || overlap(&ub->index, &ub->meta) ||
        overlap(&ub->blocks, &ub->meta))
        return "tables overlap";
    if (__builtin_mul_overflow(ub->rows, ub->row_bytes, &rows_bytes) ||
        rows_bytes != ub->index.bytes)
        return "the index has not the size of its rows";
    if (ub->rows > MAX_ROWS) return "no index has that many rows";
    if (ub->meta.bytes > MAX_META_BYTES) return "no meta is that large";
    if (ub->blocks.bytes % 8 || blocks > ub->rows + ub->file_bytes / BLOCK_BYTES)
        return "the blocks table has not the size of what it covers";
    return NULL;
}

static int decode_body(const unsigned char *in, uint64_t file_bytes, const char *path,
                       step_userblock *ub, dcp_error *err) {
    uint32_t layout = core_get_u32(in + AT_LAYOUT);
    *ub = (step_userblock){.layout = layout ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL,
                           .file_bytes = core_get_u64(in + AT_FILE),
                           .rows = core_get_u64(in + AT_ROWS),
                           .row_bytes = core_get_u64(in + AT_ROW),
                           .index = get_range(in + AT_INDEX),
                           .blocks = get_range(in + AT_BLOCKS),
                           .meta = get_range(in + AT_META),
                           .outside_crc = core_get_u64(in + AT_OUTSIDE)};
    if (ub->file_bytes != file_bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "size: the file has %llu bytes, its user block says %llu",
                            (unsigned long long)file_bytes, (unsigned long long)ub->file_bytes);
    const char *wrong = layout > 1 ? "its layout is unknown" : sizes_wrong(ub);
    for (size_t i = AT_UNUSED; i < AT_CRC && !wrong; i++)
        if (in[i]) wrong = "bytes that should be zero are not";
    return wrong ? core_fail_at(err, DCP_ERR_CORRUPT, path, "user block: %s", wrong) : DCP_OK;
}

int step_userblock_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                          step_userblock *out, dcp_error *err) {
    if (memcmp(in, magic, sizeof magic))
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "user block: not a checkpoint's file (wrong magic)");
    if (core_crc64(in, AT_CRC) != core_get_u64(in + AT_CRC))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "user block: its checksum is wrong");
    if (core_get_u32(in + AT_VERSION) != FORMAT_VERSION)
        return core_fail_at(err, DCP_ERR_VERSION, path,
                            "format version %u, this library reads version %d: use a newer one",
                            core_get_u32(in + AT_VERSION), FORMAT_VERSION);
    step_userblock ub;
    int status = decode_body(in, file_bytes, path, &ub, err);
    if (status) return status;
    *out = ub;
    return DCP_OK;
}
