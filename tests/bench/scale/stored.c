#include "stored.h"

#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "world.h"

void stored_make(stored *s, const save_file *file) {
    static const char json[] = "{\"format\":1,\"step\":1}";
    uint64_t path_bytes = index_path_bytes(file->rows, file->n), head = 8 + USERBLOCK_BYTES;
    userblock ub = {.layout = DCP_LAYOUT_GLOBAL,
                    .file_bytes = file->skeleton.file_bytes,
                    .rows = file->n,
                    .row_bytes = index_row_bytes(path_bytes, DCP_LAYOUT_GLOBAL),
                    .index = file->skeleton.index,
                    .blocks = file->skeleton.blocks,
                    .meta = file->skeleton.meta};
    s->bytes = head + ub.index.bytes + ub.blocks.bytes + ub.meta.bytes;
    s->packed = calloc(s->bytes, 1);
    NEED(s->packed);
    unsigned char *index = s->packed + head, *blocks = index + ub.index.bytes,
                  *meta = blocks + ub.blocks.bytes;
    index_encode(file->rows, file->n, path_bytes, DCP_LAYOUT_GLOBAL, index);
    memset(meta, ' ', ub.meta.bytes);
    memcpy(meta, json, sizeof json - 1);
    ub.index.crc = crc64(index, ub.index.bytes);
    ub.blocks.crc = crc64(blocks, ub.blocks.bytes);
    ub.meta.crc = crc64(meta, ub.meta.bytes);
    put_u64(s->packed, ub.file_bytes);
    userblock_encode(&ub, s->packed + 8);
}

dcp_checkpoint *stored_open(const stored *s, dcp_comm *comm) {
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    ckpt_file *file = calloc(1, sizeof *file);
    dcp_error err = {0};
    NEED(ckpt && file);
    *file = (ckpt_file){.path = strdup("step-00000001/state.h5"), .file.fd = -1, .plain = -1};
    *ckpt = (dcp_checkpoint){
        .comm = comm, .path = strdup("step-00000001"), .files = file, .n_files = 1};
    int status = tables_unpack(file, s->packed, s->bytes, &err);
    if (!status) status = checkpoint_join(ckpt, &err);
    if (status) fprintf(stderr, "%s\n", err.message);
    NEED(!status);
    return ckpt;
}
