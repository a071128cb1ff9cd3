/* A read that fails once says nothing about the file: whichever read of a load through HDF5 it is,
 * the load ends with DCP_ERR_IO, and the next one has the given state. This program's functions
 * replace libc's reads, also for MPI-IO. */
#include <dlfcn.h>
#include <errno.h>

#include "support/scratch.h"

#ifdef __SANITIZE_ADDRESS__
#define EVERY 8 /* all of them need minutes there */
#else
#define EVERY 1
#endif

static long calls, fail_at; /* reads of state.h5 so far; the one that fails, 0: none */

static int fails(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    const char *name = strrchr(path, '/');
    if (!name || strcmp(name, "/state.h5") || ++calls != fail_at) return 0;
    errno = EIO;
    return 1;
}

#define OWN_READ(name, offset_type)                                                                \
    ssize_t name(int fd, void *to, size_t bytes, offset_type offset) {                             \
        static ssize_t (*libcs)(int, void *, size_t, offset_type);                                 \
        if (!libcs) libcs = (__typeof__(libcs))dlsym(RTLD_NEXT, #name);                            \
        return fails(fd) ? -1 : libcs(fd, to, bytes, offset);                                      \
    }

__attribute__((visibility("default"))) OWN_READ(pread, off_t) __attribute__((visibility("default")))
OWN_READ(pread64, off64_t)

    __attribute__((visibility("default"))) ssize_t read(int fd, void *to, size_t bytes) {
    static ssize_t (*libcs)(int, void *, size_t);
    if (!libcs) libcs = (__typeof__(libcs))dlsym(RTLD_NEXT, "read");
    return fails(fd) ? -1 : libcs(fd, to, bytes);
}

static int load(const scratch *s, const given *g, dcp_error *err) {
    held h;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    const dcp_load_options options = {.size = sizeof options, .engine = DCP_ENGINE_MPIO};
    snprintf(dir, sizeof dir, "%s/store", s->root);
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    int status = dcp_checkpoint_open(s->comm, dir, &ckpt, err);
    if (!status) status = dcp_load_with(ckpt, h.state, &options, NULL, err);
    if (!status) CHECK(held_is_given(&h, g));
    held_free(&h);
    dcp_checkpoint_close(ckpt);
    return status;
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "store", &g, ROWS, DCP_LAYOUT_GLOBAL);
    calls = 0;
    SUCCEEDS(load(&s, &g, err));
    long all = calls;
    CHECK(all > 20);
    for (fail_at = 1; fail_at <= all; fail_at += EVERY) {
        dcp_error failure = {0};
        calls = 0;
        int status = load(&s, &g, &failure);
        if (status != DCP_ERR_IO) {
            fprintf(stderr, "read %ld of %ld failed: status %d: %s\n", fail_at, all, status,
                    failure.message);
            CHECK(status == DCP_ERR_IO);
        }
    }
    fail_at = 0;
    SUCCEEDS(load(&s, &g, err));
    given_free(&g);
    return scratch_end(&s);
}
