#include "state/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "programs/fail.h"

static const char KEY[] = "fsdp.offload_path";

struct offload {
    int fd;
    char *at;
    uint64_t bytes; /* whole pages */
};

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

/* Where the file system has no files without a name, one that loses it at once. */
static int open_nameless(const char *folder) {
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/.dcp-offload-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) unlink(path);
    return named;
}

static int fail_room(int why, const char *folder, uint64_t bytes, dcp_error *err) {
    const int full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    return core_fail(err, full ? DCP_ERR_NO_SPACE : DCP_ERR_IO,
                     "%s: no room for the %" PRIu64 " bytes of a rank in %s: %s", KEY, bytes,
                     folder, strerror(why));
}

static int map(offload *o, const char *folder, dcp_error *err) {
    o->fd = open_nameless(folder);
    if (o->fd < 0)
        return core_fail(err, DCP_ERR_ARG, "%s: cannot make a file in %s: %s", KEY, folder,
                         strerror(errno));
    const int failed = posix_fallocate(o->fd, 0, (off_t)o->bytes);
    if (failed) return fail_room(failed, folder, o->bytes, err);
    void *at = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
    if (at == MAP_FAILED)
        return core_fail(err, DCP_ERR_IO, "%s: cannot map a file in %s: %s", KEY, folder,
                         strerror(errno));
    o->at = at;
    return DCP_OK;
}

int state_offload_create(const char *folder, uint64_t bytes, offload **out, dcp_error *err) {
    const uint64_t page = page_bytes();
    offload *o = calloc(1, sizeof *o);
    if (!o) return core_fail_memory(err, sizeof *o);
    *o = (offload){.fd = -1, .bytes = (bytes + page) / page * page}; /* a page at least */
    const int status = map(o, folder, err);
    if (status == DCP_OK)
        *out = o;
    else
        state_offload_destroy(o);
    return status;
}

void state_offload_destroy(offload *o) {
    if (!o) return;
    if (o->at) munmap(o->at, o->bytes);
    if (o->fd >= 0) close(o->fd);
    free(o);
}

void *state_offload_memory(const offload *o) { return o->at; }

void state_offload_release(const offload *o, const void *from, uint64_t bytes) {
    const uint64_t page = page_bytes(), first = (uint64_t)((const char *)from - o->at);
    const uint64_t begin = first / page * page;
    const uint64_t end = (first + bytes + page - 1) / page * page;
    if (bytes == 0) return;
    madvise(o->at + begin, end - begin, MADV_DONTNEED); /* of a shared mapping: content stays */
    sync_file_range(o->fd, (off_t)begin, (off_t)(end - begin), SYNC_FILE_RANGE_WRITE);
}

void state_offload_release_all(const offload *o) { state_offload_release(o, o->at, o->bytes); }
