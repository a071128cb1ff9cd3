/* Files of a store on Lustre get their layout before their first byte, and are the same as
 * elsewhere; what Lustre refuses, and what other file systems cannot do, is logged once. The file
 * system here only claims to be Lustre, and records what is requested: no real one is used. */
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "support/scratch.h"

#define SET_LAYOUT _IOW('f', 154, long)

/* A layout as passed to the ioctl: struct lov_user_md_v1. */
typedef struct asked_layout {
    uint32_t magic, pattern;
    uint64_t object[2];
    uint32_t bytes;
    uint16_t count, first;
} asked_layout;

static struct {
    int is_lustre, refuses; /* what the file system claims */
    ssize_t own;            /* bytes of the folder's own layout; -1: it has none */
    int n, objects; /* layouts set; openings that would have given the file objects before */
    asked_layout last;
    int infos, warnings; /* lines of the log about it */
} fs;

int __real_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out) {
    const int failed = __real_statfs(path, out);
    if (fs.is_lustre && !failed) out->f_type = 0x0bd00bd0;
    return failed;
}

int __real_ioctl(int fd, unsigned long request, void *what);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    void *what = va_arg(args, void *);
    va_end(args);
    if (request != SET_LAYOUT) return __real_ioctl(fd, request, what);
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    fs.objects += st.st_size != 0 || st.st_blocks != 0;
    memcpy(&fs.last, what, sizeof fs.last);
    fs.n++;
    errno = EINVAL;
    return fs.refuses ? -1 : 0;
}

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size) {
    (void)path, (void)value, (void)size;
    CHECK(strcmp(name, "lustre.lov") == 0);
    return fs.own;
}

static void keep_line(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx;
    if (strstr(line, "stripe_count and stripe_bytes are ignored")) fs.infos++;
    if (level == DCP_LOG_WARNING && strstr(line, "Lustre refuses")) fs.warnings++;
}

static dcp_store *open_store(const scratch *s, const char *name, int64_t count, uint64_t bytes,
                             uint32_t keep) {
    char dir[PATH_MAX];
    dcp_store *store = NULL;
    dcp_store_options options = {.size = sizeof options,
                                 .keep = keep,
                                 .log = keep_line,
                                 .stripe_count = count,
                                 .stripe_bytes = bytes};
    snprintf(dir, sizeof dir, "%s/%s", s->root, name);
    fs.infos = fs.warnings = fs.n = 0;
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    return store;
}

static void save(const scratch *s, dcp_store *store, const given *g, uint64_t step,
                 dcp_layout layout) {
    held h;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, err));
    held_free(&h);
}

static void check_set(int n, int count, uint32_t bytes) {
    CHECK(fs.n == n && !fs.objects);
    if (!n) return;
    CHECK(fs.last.magic == 0x0bd10bd0 && fs.last.count == count && fs.last.bytes == bytes);
    CHECK(fs.last.first == 0xffff && !fs.last.object[0] && !fs.last.object[1] && !fs.last.pattern);
}

static void elsewhere_it_is_ignored(const scratch *s, const given *g) {
    dcp_store *store = open_store(s, "plain", 3, 1 << 20, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    save(s, store, g, 2, DCP_LAYOUT_GLOBAL);
    dcp_store_close(store);
    CHECK(fs.n == 0 && fs.infos == (s->rank == 0) && !fs.warnings);
    store = open_store(s, "plain", 0, 0, 0);
    dcp_store_close(store);
    CHECK(!fs.infos);
}

/* Two hosts, or one: 4 stripes each, if the file has so many. */
static void files_get_their_layout(const scratch *s, const given *g) {
    fs.is_lustre = 1;
    dcp_store *store = open_store(s, "asked", 3, 1 << 20, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    check_set(s->rank == 0, 3, 1 << 20);
    dcp_store_close(store);
    CHECK(!fs.infos &&
          scratch_same(s, "plain/step-00000001/state.h5", "asked/step-00000001/state.h5"));
    store = open_store(s, "hosts", 0, 65536, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    check_set(s->rank == 0, s->size > 1 ? 8 : 4, 65536);
    dcp_store_close(store);
    store = open_store(s, "shards", 0, 0, 0);
    save(s, store, g, 1, DCP_LAYOUT_SHARDED);
    check_set(1, 1, 4 << 20);
    dcp_store_close(store);
    store = open_store(s, "all", DCP_STRIPE_ALL, 0, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    check_set(s->rank == 0, 0xffff, 4 << 20);
    dcp_store_close(store);
    fs.own = 32;
    store = open_store(s, "own", 0, 0, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    check_set(0, 0, 0);
    dcp_store_close(store);
    fs.own = -1;
}

/* The file of step 1, which has a layout, becomes that of step 3. */
static void a_recycled_file_keeps_its_layout(const scratch *s, const given *g) {
    dcp_store *store = open_store(s, "recycled", 3, 0, 1);
    for (uint64_t step = 1; step <= 3; step++) save(s, store, g, step, DCP_LAYOUT_GLOBAL);
    check_set(s->rank == 0 ? 2 : 0, 3, 4 << 20);
    dcp_store_close(store);
}

static void a_refusal_is_told_once(const scratch *s, const given *g) {
    fs.refuses = 1;
    dcp_store *store = open_store(s, "refused", 2000, 0, 0);
    save(s, store, g, 1, DCP_LAYOUT_GLOBAL);
    save(s, store, g, 2, DCP_LAYOUT_GLOBAL);
    check_set(s->rank == 0 ? 2 : 0, 2000, 4 << 20);
    CHECK(fs.warnings == (s->rank == 0));
    dcp_store_close(store);
    CHECK(scratch_same(s, "plain/step-00000001/state.h5", "refused/step-00000001/state.h5"));
    fs.refuses = 0;
}

static void what_cannot_be_is_refused(const scratch *s) {
    char dir[PATH_MAX];
    dcp_store *store = NULL;
    dcp_error failure = {0};
    dcp_store_options options = {.size = sizeof options, .stripe_bytes = 65537};
    snprintf(dir, sizeof dir, "%s/none", s->root);
    int status = dcp_store_open(s->comm, dir, &options, &store, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "stripe_bytes: 65537");
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    fs.own = -1;
    SUCCEEDS(dcp_comm_set_host(s.comm, s.rank ? "b" : "a", err));
    elsewhere_it_is_ignored(&s, &g);
    files_get_their_layout(&s, &g);
    a_recycled_file_keeps_its_layout(&s, &g);
    a_refusal_is_told_once(&s, &g);
    what_cannot_be_is_refused(&s);
    given_free(&g);
    return scratch_end(&s);
}
