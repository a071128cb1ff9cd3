/* The library. */
#include "stand_in_cufile.h"

#include <cufile.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

#define PAGE 4096
#define MOST (1u << 20) /* a call does no more */

stand_in_cufile stand_in_gds = {.fails_in = -1, .flips_in = -1};
_Thread_local int stand_in_entered;

typedef struct handle {
    int fd;
} handle;

static CUfileError_t result(int code) {
    CUfileError_t status = {.err = (CUfileOpError)code};
    return status;
}

CUfileError_t cuFileDriverOpen(void) {
    CHECK(stand_in_entered);
    if (stand_in_gds.driver_fails) return result(stand_in_gds.driver_fails);
    return result(stand_in_gds.opened++ ? CU_FILE_DRIVER_ALREADY_OPEN : 0);
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr) {
    CHECK(stand_in_entered && stand_in_gds.opened);
    CHECK(descr->type == CU_FILE_HANDLE_TYPE_OPAQUE_FD && !descr->fs_ops);
    if (stand_in_gds.register_fails) return result(stand_in_gds.register_fails);
    int flags = fcntl(descr->handle.fd, F_GETFL);
    CHECK(flags >= 0);
    if (!(flags & O_DIRECT)) return result(CU_FILE_DIO_NOT_SET);
    handle *h = malloc(sizeof *h);
    CHECK(h);
    *h = (handle){descr->handle.fd};
    stand_in_gds.handles++;
    *fh = h;
    return result(0);
}

void cuFileHandleDeregister(CUfileHandle_t fh) {
    CHECK(stand_in_gds.handles-- > 0);
    CHECK(fcntl(((handle *)fh)->fd, F_GETFL) >= 0); /* closed after this */
    free(fh);
}

/* 1 for the call whose number it is. */
static int is_due(atomic_int *in) { return *in >= 0 && (*in)-- == 0; }

static ssize_t transfer(CUfileHandle_t fh, int writing, const void *base, size_t bytes,
                        off_t offset, off_t in_memory) {
    stand_in_cufile *s = &stand_in_gds;
    const unsigned char *at = (const unsigned char *)base + in_memory;
    CHECK(stand_in_entered && fh && bytes && offset % PAGE == 0 && bytes % PAGE == 0);
    CHECK(at >= s->memory && at + bytes <= s->memory + s->room);
    if (is_due(&s->fails_in)) {
        if (s->fails_with > 0) return -s->fails_with;
        errno = -s->fails_with;
        return -1;
    }
    size_t part = bytes < MOST ? bytes : MOST;
    unsigned char *bounce = aligned_alloc(PAGE, part), *behind = s->behind + (at - s->memory);
    CHECK(bounce);
    if (writing) memcpy(bounce, behind, part);
    if (writing && is_due(&s->flips_in)) bounce[part / 2] ^= 4;
    int fd = ((handle *)fh)->fd;
    ssize_t n = writing ? pwrite(fd, bounce, part, offset) : pread(fd, bounce, part, offset);
    CHECK(n == (ssize_t)part);
    if (!writing && is_due(&s->flips_in)) bounce[part / 2] ^= 4;
    if (!writing) memcpy(behind, bounce, part);
    free(bounce);
    *(writing ? &s->written : &s->read) += part;
    return n;
}

ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t bytes, off_t offset, off_t in_memory) {
    return transfer(fh, 0, base, bytes, offset, in_memory);
}

ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t bytes, off_t offset,
                    off_t in_memory) {
    return transfer(fh, 1, base, bytes, offset, in_memory);
}
