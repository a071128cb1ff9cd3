/* A save overwrites the file of a removed step if nobody else can see that file: the bytes are
 * those of a new one. If somebody can, their file is unchanged. */
#include "support/core_fixture.h"
#include "support/store_fixture.h"

#define ROWS 300000 /* of i64: runs and fragments of several pages, with gaps between */

typedef struct source {
    dcp_state *state;
    int64_t *large, small[3];
} source;

static void make_source(source *src) {
    const dcp_tensor large = {"/model/a", DCP_I64, 1, {ROWS}},
                     small = {"/model/b", DCP_I64, 1, {3}};
    const dcp_box whole[] = {dcp_box_whole(&large), dcp_box_whole(&small)};
    *src = (source){.large = calloc(ROWS, sizeof *src->large)};
    assert_int_equal(dcp_state_create(&src->state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(src->state, &large, &whole[0], src->large, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(src->state, &small, &whole[1], src->small, NULL), DCP_OK);
}

static void free_source(source *src) {
    dcp_state_destroy(src->state);
    free(src->large);
}

static const char *json_of(uint64_t step) { return step == 4 ? "{\"long\": 123456789}" : "{}"; }

static void save(dcp_store *store, source *src, uint64_t step, dcp_layout layout) {
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_error err = {0};
    for (size_t i = 0; i < ROWS; i++) src->large[i] = (int64_t)(step * 1000003 + i);
    src->small[1] = (int64_t)step;
    if (dcp_save(store, step, src->state, json_of(step), &options, NULL, &err) != DCP_OK)
        fail_msg("step %d: %s", (int)step, err.message);
}

static void path_of(const struct scratch *s, uint64_t step, const char *file, char *path) {
    snprintf(path, 200, "%s/step-%08d/%s", s->dir, (int)step, file);
}

static ino_t number_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static void assert_same_file(const char *a, const char *b) {
    size_t na, nb;
    char *x = read_file(a, &na), *y = read_file(b, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(x, y, na);
    free(x);
    free(y);
}

/* Saves the steps 1 to `last`, of which one is kept, and calls `meddle` after each. */
static void run(struct scratch *s, dcp_layout layout, uint64_t last, ino_t *numbers,
                void (*meddle)(struct scratch *, uint64_t step)) {
    char path[200];
    source src;
    dcp_store *store = open_store(s, 1, 0);
    make_source(&src);
    for (uint64_t step = 1; step <= last; step++) {
        save(store, &src, step, layout);
        path_of(s, step, layout ? "shard-00000-of-00001.h5" : "state.h5", path);
        numbers[step] = number_of(path);
        if (meddle) meddle(s, step);
    }
    dcp_store_close(store);
    free_source(&src);
}

static void assert_as_new(struct scratch *s, uint64_t step, dcp_layout layout) {
    struct scratch other = *s;
    char left[200], right[200];
    const char *file = layout ? "shard-00000-of-00001.h5" : "state.h5";
    source src;
    snprintf(other.dir, sizeof other.dir, "%s/new", s->root);
    dcp_store *store = open_store(&other, 0, 1);
    make_source(&src);
    save(store, &src, step, layout);
    path_of(s, step, file, left);
    path_of(&other, step, file, right);
    assert_same_file(left, right);
    dcp_store_close(store);
    free_source(&src);
}

static void a_spare_file_is_written_over(void **state) {
    struct scratch *s = *state;
    ino_t n[6];
    for (int layout = 0; layout < 2; layout++) {
        run(s, (dcp_layout)layout, 5, n, NULL);
        if (n[3] != n[1]) skip(); /* a file system that shares extents, or is not local */
        assert_int_equal(n[4], n[2]);
        assert_int_equal(n[5], n[3]);
        assert_as_new(s, 5, (dcp_layout)layout);
        char spare[200];
        snprintf(spare, sizeof spare, "%s/.trash-spare", s->dir);
        assert_int_equal(access(spare, F_OK), -1); /* closed: nothing is left */
        assert_int_equal(store_directory_remove(AT_FDCWD, s->dir), 0);
    }
}

static int held; /* a reader's descriptor */

static void open_first(struct scratch *s, uint64_t step) {
    char path[200];
    path_of(s, step, "state.h5", path);
    if (step == 1) held = open(path, O_RDONLY);
}

static void link_first(struct scratch *s, uint64_t step) {
    char path[200], name[200];
    path_of(s, step, "state.h5", path);
    snprintf(name, sizeof name, "%s/mine", s->root);
    if (step == 1) assert_int_equal(link(path, name), 0);
}

static void touch_second(struct scratch *s, uint64_t step) {
    char path[200];
    path_of(s, step, "state.h5", path);
    if (step != 2) return;
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static void what_a_reader_holds_stays(void **state) {
    struct scratch *s = *state;
    ino_t n[5];
    char path[200];
    run(s, DCP_LAYOUT_GLOBAL, 4, n, open_first);
    assert_true(held >= 0);
    assert_int_not_equal(n[3], n[1]);
    struct stat st;
    assert_int_equal(fstat(held, &st), 0);
    char *seen = malloc((size_t)st.st_size);
    assert_int_equal(pread(held, seen, (size_t)st.st_size, 0), st.st_size);
    source src;
    make_source(&src);
    dcp_store *store = open_store(s, 0, 1);
    assert_int_equal(dcp_store_continue_from(store, 0, NULL), DCP_OK);
    save(store, &src, 1, DCP_LAYOUT_GLOBAL);
    dcp_store_close(store);
    free_source(&src);
    size_t bytes;
    path_of(s, 1, "state.h5", path);
    char *first = read_file(path, &bytes);
    assert_int_equal(bytes, st.st_size);
    assert_memory_equal(first, seen, bytes);
    free(first);
    free(seen);
    close(held);
}

static void what_has_another_name_stays(void **state) {
    struct scratch *s = *state;
    ino_t n[5];
    char mine[200];
    run(s, DCP_LAYOUT_GLOBAL, 4, n, link_first);
    snprintf(mine, sizeof mine, "%s/mine", s->root);
    assert_int_equal(number_of(mine), n[1]);
    assert_int_not_equal(n[3], n[1]);
    assert_int_not_equal(n[4], n[1]);
}

static void what_was_changed_is_not_used(void **state) {
    struct scratch *s = *state;
    ino_t n[5];
    run(s, DCP_LAYOUT_GLOBAL, 4, n, touch_second);
    assert_as_new(s, 4, DCP_LAYOUT_GLOBAL);
}

static void a_smaller_state_gets_a_new_file(void **state) {
    struct scratch *s = *state;
    static int64_t more[2000] = {7};
    const dcp_tensor t = {"/model/aa", DCP_I64, 1, {2000}};
    const dcp_box whole = dcp_box_whole(&t);
    source larger, src;
    dcp_store *store = open_store(s, 1, 0);
    make_source(&larger);
    make_source(&src);
    assert_int_equal(dcp_state_add(larger.state, &t, &whole, more, NULL), DCP_OK);
    for (uint64_t step = 1; step <= 3; step++) save(store, &larger, step, DCP_LAYOUT_GLOBAL);
    save(store, &src, 4, DCP_LAYOUT_GLOBAL);
    assert_as_new(s, 4, DCP_LAYOUT_GLOBAL);
    dcp_store_close(store);
    free_source(&larger);
    free_source(&src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(a_spare_file_is_written_over),    scratch_test(what_a_reader_holds_stays),
        scratch_test(what_has_another_name_stays),     scratch_test(what_was_changed_is_not_used),
        scratch_test(a_smaller_state_gets_a_new_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
