#include "refuse.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    char below[PATH_MAX], what[2 * PATH_MAX];
    size_t below_bytes;
    const char *all;
    int error;
    long at;
    atomic_long calls;
    atomic_int is_on;
} plan;

static _Thread_local int paused;

/* The addresses of the library's code: this program's own, libdcp's and jansson's. */
static struct { uintptr_t from, to; } code[8];
static int n_code;

static int note_code(struct dl_phdr_info *info, size_t size, void *is_first) {
    (void)size;
    const int is_own = *(int *)is_first;
    *(int *)is_first = 0;
    if (!is_own && !strstr(info->dlpi_name, "libdcp") && !strstr(info->dlpi_name, "libjansson"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && n_code < 8; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        code[n_code].from = info->dlpi_addr + part->p_vaddr;
        code[n_code].to = code[n_code].from + part->p_memsz;
        n_code++;
    }
    return 0;
}

void refuse_begin(const char *below, int error, long at) {
    int is_first = 1;
    if (!n_code) dl_iterate_phdr(note_code, &is_first);
    plan.below_bytes = (size_t)snprintf(plan.below, sizeof plan.below, "%s", below);
    plan.error = error;
    plan.at = at;
    plan.what[0] = 0;
    atomic_store(&plan.calls, 0);
    atomic_store(&plan.is_on, 1);
}

long refuse_end(void) {
    atomic_store(&plan.is_on, 0);
    return atomic_load(&plan.calls);
}

const char *refuse_what(void) { return plan.what; }

void refuse_pause(int is) { paused = is; }

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("REFUSE_BELOW");
    if (!below) return;
    plan.all = getenv("REFUSE_ALL");
    refuse_begin(below, atoi(getenv("REFUSE_ERRNO")), atol(getenv("REFUSE_AT")));
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("REFUSE_COUNT");
    if (!path || !atomic_load(&plan.is_on)) return;
    const long calls = refuse_end();
    FILE *file = fopen(path, "we");
    if (!file) return;
    fprintf(file, "%ld %s\n", calls, plan.what);
    fclose(file);
}

/* Writes the path of `path` in the folder `fd` (or of the open file itself, if path is NULL).
 * Returns 1 if it is below plan.below. */
static int locate(int fd, const char *path, char out[2 * PATH_MAX]) {
    char link[64];
    ssize_t n = 0;
    if (!path || (*path != '/' && fd != AT_FDCWD)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, out, PATH_MAX - 1);
        if (n < 0) return 0;
    }
    out[n] = 0;
    if (path && *path != '/' && fd == AT_FDCWD && getcwd(out, PATH_MAX)) n = (ssize_t)strlen(out);
    if (path) snprintf(out + n, 2 * PATH_MAX - (size_t)n, n ? "/%s" : "%s", path);
    return !strncmp(out, plan.below, plan.below_bytes) &&
           (out[plan.below_bytes] == '/' || !out[plan.below_bytes]);
}

/* Returns 1 if the call must fail, with errno set. */
static int hit(const char *name, int fd, const char *path) {
    char where[2 * PATH_MAX];
    const int before = errno;
    if (!atomic_load(&plan.is_on) || paused || !plan.error) return 0;
    paused = 1;
    const int counts = locate(fd, path, where);
    paused = 0;
    errno = before;
    if (!counts) return 0;
    const int is_bad = plan.all && strstr(where, plan.all);
    if (atomic_fetch_add(&plan.calls, 1) + 1 != plan.at && !is_bad) return 0;
    snprintf(plan.what, sizeof plan.what, "%s %.*s", name, PATH_MAX, where);
    errno = plan.error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))real_function(#name))

static void *real_function(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

#define OPEN_MODE(flags, last)                                                                     \
    mode_t mode = 0;                                                                               \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                                   \
        va_list args;                                                                              \
        va_start(args, last);                                                                      \
        mode = va_arg(args, mode_t);                                                               \
        va_end(args);                                                                              \
    }

int open(const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return hit("open", AT_FDCWD, path) ? -1 : REAL(openat)(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return hit("open", AT_FDCWD, path) ? -1 : REAL(openat)(AT_FDCWD, path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return hit("open", fd, path) ? -1 : REAL(openat)(fd, path, flags, mode);
}

/* Defines `type name(params)`, which returns `failed` if it must fail. */
#define CALL(type, name, params, args, fd, path, failed)                                           \
    type name params { return hit(#name, fd, path) ? (failed) : REAL(name) args; }

CALL(DIR *, opendir, (const char *path), (path), AT_FDCWD, path, NULL)
CALL(DIR *, fdopendir, (int fd), (fd), fd, NULL, NULL)
CALL(struct dirent *, readdir, (DIR * dir), (dir), dirfd(dir), NULL, NULL)
CALL(struct dirent64 *, readdir64, (DIR * dir), (dir), dirfd(dir), NULL, NULL)
CALL(int, stat, (const char *path, struct stat *st), (path, st), AT_FDCWD, path, -1)
CALL(int, lstat, (const char *path, struct stat *st), (path, st), AT_FDCWD, path, -1)
CALL(int, fstat, (int fd, struct stat *st), (fd, st), fd, NULL, -1)
CALL(int, fstatat, (int fd, const char *path, struct stat *st, int flags), (fd, path, st, flags),
     fd, path, -1)
CALL(int, access, (const char *path, int mode), (path, mode), AT_FDCWD, path, -1)
CALL(ssize_t, readlink, (const char *path, char *to, size_t bytes), (path, to, bytes), AT_FDCWD,
     path, -1)
CALL(ssize_t, readlinkat, (int fd, const char *path, char *to, size_t bytes), (fd, path, to, bytes),
     fd, path, -1)
CALL(char *, realpath, (const char *path, char *to), (path, to), AT_FDCWD, path, NULL)
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), AT_FDCWD, path, NULL)
CALL(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes), fd, NULL, -1)
CALL(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at), fd, NULL, -1)
CALL(ssize_t, pread64, (int fd, void *to, size_t bytes, off64_t at), (fd, to, bytes, at), fd, NULL,
     -1)
CALL(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes), fd, NULL, -1)
CALL(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at), fd,
     NULL, -1)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, -1)
CALL(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode), fd, path, -1)
CALL(int, symlinkat, (const char *to, int fd, const char *path), (to, fd, path), fd, path, -1)
CALL(int, unlink, (const char *path), (path), AT_FDCWD, path, -1)
CALL(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), fd, path, -1)
CALL(int, rename, (const char *from, const char *to), (from, to), AT_FDCWD, from, -1)
CALL(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), a, from, -1)
CALL(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags), a, from, -1)
CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes), fd, NULL, -1)
CALL(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), fd, NULL, -1)
CALL(int, fsync, (int fd), (fd), fd, NULL, -1)

static int fcntl_or(int fd, int command, void *argument) {
    const int counts = command != F_GETFD && command != F_SETFD && command != F_GETFL;
    return counts && hit("fcntl", fd, NULL) ? -1 : REAL(fcntl)(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return fcntl_or(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return fcntl_or(fd, command, argument);
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    (void)entries, (void)ring, (void)flags;
    return -EPERM;
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                               struct io_uring_params *params) {
    (void)entries, (void)ring, (void)params;
    return -EPERM;
}

#ifndef __SANITIZE_ADDRESS__
static int hit_memory(const void *caller, size_t bytes) {
    const uintptr_t at = (uintptr_t)caller;
    int is_ours = 0;
    if (!atomic_load(&plan.is_on) || paused || plan.error) return 0;
    for (int i = 0; i < n_code; i++) is_ours |= at >= code[i].from && at < code[i].to;
    if (!is_ours || atomic_fetch_add(&plan.calls, 1) + 1 != plan.at) return 0;
    snprintf(plan.what, sizeof plan.what, "allocation of %zu bytes at %p", bytes, caller);
    errno = ENOMEM;
    return 1;
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

#define IS_HIT(bytes) hit_memory(__builtin_return_address(0), bytes)

void *malloc(size_t n) { return IS_HIT(n) ? NULL : __libc_malloc(n); }
void *calloc(size_t a, size_t b) { return IS_HIT(a * b) ? NULL : __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return IS_HIT(n) ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { return IS_HIT(n) ? NULL : __libc_memalign(a, n); }

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    void *p = IS_HIT(bytes) ? NULL : __libc_memalign(alignment, bytes);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

char *strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = IS_HIT(bytes) ? NULL : __libc_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

int vasprintf(char **out, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = IS_HIT((size_t)n + 1) ? NULL : __libc_malloc((size_t)n + 1);
    if (!text) return -1;
    *out = text;
    return vsnprintf(text, (size_t)n + 1, fmt, args);
}

int asprintf(char **out, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = IS_HIT((size_t)n + 1) ? NULL : __libc_malloc((size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    *out = text;
    return text ? n : -1;
}
#endif
