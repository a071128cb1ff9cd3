/* The source of a file's HDF5 metadata is determined by laying the file out again in memory. If
 * that fails, the check ends with the failure, and says nothing about the metadata. */
#include "support/store_fixture.h"

#include <errno.h>
#include <hdf5.h>
#include <sys/resource.h>

#include "dcp/inspect.h"
#include "format/index.h"

enum { ELEMENTS = 1 << 18, FILL = 0x5a }; /* 1 MiB of F32 */

static int memory_error; /* errno of memfd_create; 0: it works */
static int no_datasets;

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    if (!memory_error) return __real_memfd_create(name, flags);
    errno = memory_error;
    return -1;
}

hid_t __real_H5Dcreate2(hid_t at, const char *name, hid_t type, hid_t space, hid_t links,
                        hid_t storage, hid_t access);
hid_t __wrap_H5Dcreate2(hid_t at, const char *name, hid_t type, hid_t space, hid_t links,
                        hid_t storage, hid_t access);
hid_t __wrap_H5Dcreate2(hid_t at, const char *name, hid_t type, hid_t space, hid_t links,
                        hid_t storage, hid_t access) {
    return no_datasets ? -1 : __real_H5Dcreate2(at, name, type, space, links, storage, access);
}

static void save_step(struct scratch *s, char *path, size_t size) {
    static float values[ELEMENTS];
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {ELEMENTS}};
    dcp_store *store = open_store(s, 0, 0);
    dcp_state *state;
    memset(values, FILL, sizeof values);
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, values, NULL), DCP_OK);
    assert_int_equal(dcp_save(store, 1, state, NULL, NULL, NULL, NULL), DCP_OK);
    dcp_state_destroy(state);
    dcp_store_close(store);
    snprintf(path, size, "%s/step-00000001", s->dir);
}

static void on_line(void *ctx, const char *line) {
    (void)ctx;
    fail_msg("told: %s", line);
}

static void ends_with(const char *path, int expected) {
    dcp_verify_options options = DCP_VERIFY_OPTIONS_INIT;
    dcp_error err = {0};
    options.on_note = options.on_damage = on_line;
    const int status = dcp_verify(path, &options, &err);
    if (status != expected) fail_msg("status %d: %s", status, err.message);
    if (!expected) return;
    assert_int_equal(err.status, expected);
    assert_non_null(strstr(err.message, "state.h5: HDF5 metadata: could not be checked: "));
    assert_non_null(strstr(err.path, "/step-00000001/state.h5"));
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_limit_of_file_sizes_is_no_foreign_metadata(void **state) {
    static const rlim_t limits[] = {1, 4096, 16384, 100 << 10, 500000, 1 << 20};
    char path[PATH_MAX];
    save_step(*state, path, sizeof path);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        limit_files(limits[i]);
        ends_with(path, DCP_ERR_IO);
        limit_files(RLIM_INFINITY);
        ends_with(path, DCP_OK);
    }
}

static void no_memory_file_is_no_foreign_metadata(void **state) {
    static const int errors[][2] = {
        {ENFILE, DCP_ERR_IO}, {EMFILE, DCP_ERR_IO}, {ENOMEM, DCP_ERR_NO_MEMORY}};
    char path[PATH_MAX];
    save_step(*state, path, sizeof path);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        memory_error = errors[i][0];
        ends_with(path, errors[i][1]);
        memory_error = 0;
        ends_with(path, DCP_OK);
    }
}

static void a_failure_of_hdf5_is_no_foreign_metadata(void **state) {
    char path[PATH_MAX];
    save_step(*state, path, sizeof path);
    no_datasets = 1;
    ends_with(path, DCP_ERR_IO);
    no_datasets = 0;
    ends_with(path, DCP_OK);
}

static void count_line(void *ctx, const char *line) {
    assert_non_null(strstr(line, "/model/w"));
    ++*(int *)ctx;
}

/* Damages a page that contains only the tensor. */
static void damage_tensor(const char *path) {
    char name[PATH_MAX + 16], page[PAGE_BYTES], whole[PAGE_BYTES];
    long at = 0;
    snprintf(name, sizeof name, "%s/state.h5", path);
    FILE *f = fopen(name, "r+");
    assert_non_null(f);
    memset(whole, FILL, sizeof whole);
    while (fread(page, sizeof page, 1, f) == 1 && memcmp(page, whole, sizeof page))
        at += (long)sizeof page;
    assert_memory_equal(page, whole, sizeof page);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(FILL + 1, f), FILL + 1);
    assert_int_equal(fclose(f), 0);
}

static void damage_is_reported_all_the_same(void **state) {
    char path[PATH_MAX];
    dcp_verify_options options = DCP_VERIFY_OPTIONS_INIT;
    int damages = 0;
    save_step(*state, path, sizeof path);
    damage_tensor(path);
    options.on_damage = count_line;
    options.on_note = on_line;
    options.ctx = &damages;
    memory_error = ENFILE;
    const int status = dcp_verify(path, &options, NULL);
    memory_error = 0;
    assert_int_equal(status, DCP_ERR_IO);
    assert_int_equal(damages, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(a_limit_of_file_sizes_is_no_foreign_metadata),
        scratch_test(no_memory_file_is_no_foreign_metadata),
        scratch_test(a_failure_of_hdf5_is_no_foreign_metadata),
        scratch_test(damage_is_reported_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
