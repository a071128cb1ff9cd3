/* Space for the whole file is reserved at first, so a full disk is noticed before bytes move. */
#include "redundancy/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "io/file.h"
#include "io/publish.h"
#include "step/userblock.h"

static char *join_path(const char *folder, const char *prefix, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s%s", folder, prefix, name) < 0 ? NULL : path;
}

int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err) {
    *o = (redundancy_output){
        .file = {.fd = -1, .start = start, .bytes = bytes, .block_bytes = block_bytes}};
    uint64_t blocks = (bytes + block_bytes - 1) / block_bytes + 1;
    int status;
    o->path = join_path(folder, "", name);
    o->tmp = join_path(folder, ".tmp-", name);
    o->file.raws = calloc(blocks, sizeof *o->file.raws);
    if (!o->path || !o->tmp || !o->file.raws) {
        status = core_fail_memory(err, blocks * sizeof *o->file.raws);
        goto free_output;
    }
    o->file.path = o->tmp;
    if (unlink(o->tmp) && errno != ENOENT) {
        status = core_fail_errno(err, "cannot remove", o->tmp);
        goto free_output;
    }
    status = io_create(o->tmp, start + bytes, err);
    if (!status) {
        o->file.fd = open(o->tmp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (o->file.fd < 0) status = core_fail_errno(err, "cannot open", o->tmp);
    }
    if (status) unlink(o->tmp);
free_output:
    if (status) redundancy_output_end(o);
    return status;
}

int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err) {
    uint64_t bytes = o->file.start;
    unsigned char *head = calloc(1, bytes);
    if (!head) return core_fail_memory(err, bytes);
    unsigned char *table = head + PAGE_BYTES;
    for (uint64_t b = 0, left = o->file.bytes; left; b++) {
        uint64_t part = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        core_put_u64(table + b * 8, core_crc64_finish(o->file.raws[b], part));
        left -= part;
    }
    h->table_crc = core_crc64(table, bytes - PAGE_BYTES);
    redundancy_parity_header_encode(h, head);
    int status = io_write_plain(o->file.fd, head, bytes, 0, o->tmp, err);
    free(head);
    return status;
}

int redundancy_output_publish(redundancy_output *o, dcp_error *err) {
    const int failed = io_publish_file(o->file.fd, o->tmp, o->path);
    int status = DCP_OK;
    if (failed < 0)
        status = core_fail_errno(err, "cannot finish", o->path);
    else if (failed)
        status = core_fail_errno(err,
                                 "it is there and whole, but may be gone after a loss of "
                                 "power: cannot sync the folder of",
                                 o->path);
    if (failed < 0) unlink(o->tmp);
    close(o->file.fd);
    o->file.fd = -1;
    return status;
}

void redundancy_output_end(redundancy_output *o) {
    if (o->file.fd >= 0 && o->tmp) {
        close(o->file.fd);
        unlink(o->tmp);
    }
    free(o->file.raws);
    free(o->tmp);
    free(o->path);
    *o = (redundancy_output){.file = {.fd = -1}};
}
