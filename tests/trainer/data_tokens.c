/* Files of token ids as samples: both widths, where the width comes from, files beyond 4 GiB, and
 * what is wrong with such files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data.h"
#include "data_folder.h"
#include "random/random.h"

enum { SEQUENCE = 5, TOKENS = 33, SAMPLES = 6 };

static void put(const char *path, uint64_t first, uint64_t n, int width) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = first; i < first + n; i++) {
        const uint64_t id = 1000 + 7 * i;
        for (int b = 0; b < width; b++) fputc((int)(id >> 8 * b & 0xff), file);
    }
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state) {
    char dir[] = "tokens-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0) return -1;
    mkdir("two", 0777);
    mkdir("four", 0777);
    mkdir("two/.hidden", 0777);
    put("two/.hidden/c", 40, 23, 2);
    put("two/.a", 40, 23, 2);
    put("two/b", 10, 23, 2);
    put("two/a", 0, 10, 2);
    put("two/empty", 0, 0, 2);
    put("four/whole", 0, TOKENS, 4);
    put("odd", 0, TOKENS, 2);
    *state = strdup(dir);
    return truncate("odd", 65);
}

static sample_shape shape_of(uint64_t sequence, uint64_t vocabulary) {
    return (sample_shape){.tokens = sequence, .targets = sequence, .classes = vocabulary};
}

static data *open_tokens(const char *path, const char *dtype, uint64_t vocab) {
    const data_options o = {.type = "tokens",
                            .path = path,
                            .dtype = dtype,
                            .batch = 4,
                            .shape = shape_of(SEQUENCE, vocab)};
    data *d;
    dcp_error err;
    if (data_open(&o, &d, &err) != DCP_OK) fail_msg("%s: %s", path, err.message);
    return d;
}

/* The ids of two files in a folder, beside hidden ones that do not count, cut anywhere, are those
 * of one file of the other width. */
static void both_widths_give_the_same_samples(void **state) {
    (void)state;
    data *two = open_tokens("two", NULL, 65536), *four = open_tokens("four/*", NULL, 65537);
    assert_int_equal(data_samples(two), SAMPLES);
    assert_int_equal(data_samples(four), SAMPLES);
    for (uint64_t g = 0; g < 2 * SAMPLES; g++) {
        int32_t ids[2][SEQUENCE], targets[2][SEQUENCE];
        const sample_batch out[2] = {{.ids = ids[0], .targets = targets[0]},
                                     {.ids = ids[1], .targets = targets[1]}};
        uint64_t counted;
        assert_int_equal(data_read(two, 3, g, 1, &out[0], &counted, NULL), DCP_OK);
        assert_int_equal(data_read(four, 3, g, 1, &out[1], &counted, NULL), DCP_OK);
        assert_memory_equal(ids[0], ids[1], sizeof *ids);
        assert_memory_equal(targets[0], targets[1], sizeof *targets);
        assert_int_equal((ids[0][0] - 1000) % (7 * SEQUENCE), 0);
        for (int i = 0; i < SEQUENCE; i++) {
            assert_int_equal(ids[0][i], ids[0][0] + 7 * i);
            assert_int_equal(targets[0][i], ids[0][i] + 7);
        }
    }
    data_close(two);
    data_close(four);
    two = open_tokens("two", "uint16", 100000); /* asked for, whatever the vocabulary */
    four = open_tokens("four", "uint32", 2000);
    assert_int_equal(data_samples(two), data_samples(four));
    data_close(two);
    data_close(four);
}

static void says_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *path, *dtype;
        uint64_t sequence, vocab;
        const char *message;
    } cases[] = {
        {"nowhere", NULL, SEQUENCE, 2000, "nowhere: No such file"},
        {"two/empty", NULL, SEQUENCE, 2000, "holds 0 tokens"},
        {"two", NULL, 33, 2000, "holds 33 tokens in 2 files"},
        {"odd", NULL, SEQUENCE, 2000, "odd holds 65 bytes, which is not a multiple of the 2"},
        {"two", "uint32", SEQUENCE, 2000, "two/b holds 46 bytes, which is not a multiple of the 4"},
        {"two", NULL, SEQUENCE, 1100, "two/b: the uint16 at byte 10 is 1105"},
        {"four", NULL, SEQUENCE, 70000, NULL},
        {"four", "uint16", SEQUENCE, 1000, "four/whole: the uint16 at byte 0 is 1000"},
        {"two/a", "uint32", SEQUENCE - 1, 70000, "two/a: the uint32 at byte 0 is 65995752"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const data_options o = {.type = "tokens",
                                .path = cases[i].path,
                                .dtype = cases[i].dtype,
                                .batch = 4,
                                .shape = shape_of(cases[i].sequence, cases[i].vocab)};
        data *d;
        dcp_error err = {.message = ""};
        const int status = data_open(&o, &d, &err);
        if (status == DCP_OK) data_close(d);
        assert_int_equal(status == DCP_OK, cases[i].message == NULL);
        if (cases[i].message && !strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].path, err.message);
    }
}

/* A hole of 6 GiB before the one wrong id: told with its place by the sample that holds it. */
static void finds_a_wrong_id_far_in_a_large_file(void **state) {
    (void)state;
    const uint64_t offset = (uint64_t)6 << 30, samples = 3072, sequence = offset / 4 / samples;
    const int fd = open("large", O_WRONLY | O_CREAT, 0666);
    assert_int_equal(pwrite(fd, "\xff\xff\x00\x00", 4, (off_t)offset), 4);
    close(fd);
    const data_options o = {.type = "tokens",
                            .path = "large",
                            .dtype = "uint32",
                            .batch = 1,
                            .shape = shape_of(sequence, 65535)};
    data *d;
    dcp_error err;
    assert_int_equal(data_open(&o, &d, &err), DCP_OK);
    assert_int_equal(data_samples(d), samples);
    int32_t *ids = malloc(2 * sequence * sizeof *ids);
    const sample_batch out = {.ids = ids, .targets = ids + sequence};
    uint64_t counted, last = 0;
    while (random_permute(last, samples, 3, 0) != samples - 1) last++;
    assert_int_equal(data_read(d, 3, (last + 1) % samples, 1, &out, &counted, &err), DCP_OK);
    assert_int_equal(data_read(d, 3, last, 1, &out, &counted, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "large: the uint32 at byte 6442450944 is 65535"));
    free(ids);
    data_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_widths_give_the_same_samples),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(finds_a_wrong_id_far_in_a_large_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
