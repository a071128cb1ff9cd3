/* Reading the tables of one file with plain reads, before HDF5 or anything else sees it. Nothing is
 * used before its checksum was right; sizes were bounded by the file's before that. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/checkpoint.h"

enum { HEAD_BYTES = 8 + USERBLOCK_BYTES }; /* the file's size goes before the user block */

static int open_file(const char *path, int *fd, uint64_t *bytes, dcp_error *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return core_fail_errno(err, "cannot open", path);
    if (fstat(*fd, &st)) return core_fail_errno(err, "cannot look at", path);
    *bytes = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode)) return core_fail(err, DCP_ERR_CORRUPT, "%s: not a file", path);
    if (*bytes < USERBLOCK_BYTES)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: size: %llu bytes are less than a user block",
                         path, (unsigned long long)*bytes);
    return DCP_OK;
}

int tables_pack(const char *path, unsigned char **packed, uint64_t *bytes, dcp_error *err) {
    int fd = -1;
    uint64_t file_bytes = 0;
    unsigned char head[USERBLOCK_BYTES], *all;
    userblock ub;
    int status = open_file(path, &fd, &file_bytes, err);
    if (!status) status = io_read_plain(fd, head, sizeof head, 0, path, err);
    if (!status) status = userblock_decode(head, file_bytes, path, &ub, err);
    if (status) goto close_fd;
    const file_range *tables[] = {&ub.index, &ub.blocks, &ub.meta};
    uint64_t total = HEAD_BYTES + ub.index.bytes + ub.blocks.bytes + ub.meta.bytes;
    all = malloc(total);
    if (!all) {
        status = core_fail_memory(err, total);
        goto close_fd;
    }
    put_u64(all, file_bytes);
    memcpy(all + 8, head, sizeof head);
    unsigned char *at = all + HEAD_BYTES;
    for (int t = 0; t < 3 && !status; at += tables[t++]->bytes)
        status = io_read_plain(fd, at, tables[t]->bytes, tables[t]->offset, path, err);
    if (status) {
        free(all);
    } else {
        *packed = all;
        *bytes = total;
    }
close_fd:
    if (fd >= 0) close(fd);
    return status;
}

static int check_table(const char *path, const char *name, const unsigned char *data,
                       const file_range *range, dcp_error *err) {
    if (crc64(data, range->bytes) == range->crc) return DCP_OK;
    return core_fail(err, DCP_ERR_CORRUPT, "%s: %s: its checksum is wrong", path, name);
}

static int keep_meta(ckpt_file *file, const unsigned char *data, dcp_error *err) {
    uint64_t bytes = file->ub.meta.bytes;
    while (bytes && data[bytes - 1] == ' ') bytes--;
    file->meta = malloc(bytes + 1);
    if (!file->meta) return core_fail_memory(err, bytes + 1);
    memcpy(file->meta, data, bytes);
    file->meta[bytes] = 0;
    return DCP_OK;
}

static int keep_crcs(ckpt_file *file, const unsigned char *data, dcp_error *err) {
    uint64_t n = file->ub.blocks.bytes / 8;
    file->crcs = malloc((n + 1) * sizeof *file->crcs);
    if (!file->crcs) return core_fail_memory(err, n * 8);
    for (uint64_t b = 0; b < n; b++) file->crcs[b] = get_u64(data + 8 * b);
    return DCP_OK;
}

int tables_unpack(ckpt_file *file, const unsigned char *packed, uint64_t bytes, dcp_error *err) {
    int status = userblock_decode(packed + 8, get_u64(packed), file->path, &file->ub, err);
    if (status) return status;
    const userblock *ub = &file->ub;
    if (bytes != HEAD_BYTES + ub->index.bytes + ub->blocks.bytes + ub->meta.bytes)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: user block: changed while it was read",
                         file->path);
    const unsigned char *index = packed + HEAD_BYTES, *blocks = index + ub->index.bytes,
                        *meta = blocks + ub->blocks.bytes;
    status = check_table(file->path, "index", index, &ub->index, err);
    if (!status) status = check_table(file->path, "blocks", blocks, &ub->blocks, err);
    if (!status) status = check_table(file->path, "meta", meta, &ub->meta, err);
    if (!status) status = index_decode(index, ub, file->path, &file->rows, err);
    if (!status) status = keep_crcs(file, blocks, err);
    if (!status) status = keep_meta(file, meta, err);
    return status;
}

int tables_read(ckpt_file *file, dcp_error *err) {
    unsigned char *packed;
    uint64_t bytes;
    int status = tables_pack(file->path, &packed, &bytes, err);
    if (status) return status;
    status = tables_unpack(file, packed, bytes, err);
    free(packed);
    return status;
}

void tables_free(ckpt_file *file) {
    io_close(&file->file);
    if (file->plain >= 0) close(file->plain);
    free(file->path);
    free(file->rows);
    free(file->crcs);
    free(file->meta);
}
