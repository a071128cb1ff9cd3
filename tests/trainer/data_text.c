/* Text as samples: files, folders and globs, windows across files, and what is wrong with data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data.h"
#include "data_folder.h"

enum { SEQUENCE = 5 };
static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456"; /* 33 bytes: 6 windows */

static void put(const char *path, const char *bytes, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Files whose order by path is not the order in which they are made; one is empty. */
static int make_folder(void **state) {
    char dir[] = "text-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0) return -1;
    mkdir("in", 0777);
    mkdir("in/b", 0777);
    put("in/c.txt", all + 20, 13);
    put("in/b/x.txt", all + 7, 13);
    put("in/a.txt", all, 7);
    put("in/b/empty", "", 0);
    put("whole", all, 33);
    *state = strdup(dir);
    return 0;
}

static data_options options(const char *path) {
    return (data_options){
        .type = "text",
        .path = path,
        .batch = 4,
        .shape = {.tokens = SEQUENCE, .targets = SEQUENCE, .classes = 256},
    };
}

static void windows_cover_the_bytes(void **state) {
    (void)state;
    static const char *const paths[] = {"whole", "in", "in/*"};
    int32_t first[6][SEQUENCE];
    for (size_t p = 0; p < 3; p++) {
        const data_options o = options(paths[p]);
        data *d;
        assert_int_equal(data_open(&o, &d, NULL), DCP_OK);
        assert_int_equal(data_samples(d), 6);
        char seen[34] = {0};
        for (uint64_t g = 0; g < 6; g++) {
            int32_t ids[SEQUENCE], targets[SEQUENCE];
            uint64_t counted;
            assert_int_equal(data_read(d, 3, g, 1, &(sample_batch){.ids = ids, .targets = targets},
                                       &counted, NULL),
                             DCP_OK);
            assert_int_equal(counted, SEQUENCE);
            const char *at = strchr(all, ids[0]);
            for (int i = 0; i < SEQUENCE; i++) {
                assert_int_equal(ids[i], at[i]);
                assert_int_equal(targets[i], at[i + 1]);
                seen[at - all + i] = 1;
            }
            if (p == 0) memcpy(first[g], ids, sizeof ids);
            assert_memory_equal(first[g], ids, sizeof ids); /* the same order wherever they lie */
        }
        assert_int_equal(strlen(seen), 30);
        data_close(d);
    }
}

static void a_sample_is_a_function_of_its_number(void **state) {
    (void)state;
    const data_options o = options("in");
    data *d;
    assert_int_equal(data_open(&o, &d, NULL), DCP_OK);
    int32_t ids[20][SEQUENCE], targets[20][SEQUENCE], again[SEQUENCE], next[SEQUENCE];
    uint64_t counted;
    assert_int_equal(data_read(d, 3, 0, 20, &(sample_batch){.ids = ids[0], .targets = targets[0]},
                               &counted, NULL),
                     DCP_OK);
    assert_int_equal(counted, 100);
    for (uint64_t g = 20; g-- > 0;) {
        assert_int_equal(
            data_read(d, 3, g, 1, &(sample_batch){.ids = again, .targets = next}, &counted, NULL),
            DCP_OK);
        assert_memory_equal(again, ids[g], sizeof again);
        assert_memory_equal(next, targets[g], sizeof next);
    }
    assert_memory_not_equal(ids[0], ids[6], 6 * sizeof again); /* another epoch, another order */
    data_close(d);
}

static void says_what_is_wrong(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"nowhere", "nowhere: No such file"}, {"no*where", "nothing matches no*where"},
        {"whole/below", "Not a directory"},   {"in/b/empty", "holds 0 bytes"},
        {"in/a.tx", "in/a.tx: No such file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const data_options o = options(cases[i][0]);
        data *d;
        dcp_error err;
        assert_int_not_equal(data_open(&o, &d, &err), DCP_OK);
        if (!strstr(err.message, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.message);
    }
    data_options small = options("whole");
    small.shape.classes = 255;
    data *d;
    assert_int_equal(data_open(&small, &d, NULL), DCP_ERR_ARG);
}

static void notices_a_file_that_shrinks(void **state) {
    (void)state;
    put("shrinks", all, 33);
    const data_options o = options("shrinks");
    data *d;
    assert_int_equal(data_open(&o, &d, NULL), DCP_OK);
    assert_int_equal(truncate("shrinks", 3), 0);
    int32_t ids[6 * SEQUENCE], targets[6 * SEQUENCE];
    uint64_t counted;
    assert_int_equal(
        data_read(d, 3, 0, 6, &(sample_batch){.ids = ids, .targets = targets}, &counted, NULL),
        DCP_ERR_IO);
    data_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_cover_the_bytes),
        cmocka_unit_test(a_sample_is_a_function_of_its_number),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(notices_a_file_that_shrinks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
