/* One batch from a safetensors file: images as the model's config has them, vectors from any shape,
 * and what is wrong with a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"

enum { ROWS = 3, VALUES = 2 * 4 * 5 };

static const sample_shape image = {.ndim = 3, .dims = {2, 4, 5}, .targets = 1, .classes = 10};
static const sample_shape vector = {.ndim = 1, .dims = {VALUES}, .targets = 1, .classes = 10};
static const sample_shape tokens = {.tokens = 6, .targets = 6, .classes = 10};
static char path[] = "fixed-XXXXXX";

/* A file of tensors whose header is given; its data are 0, 1, 2 ... as F32 and labels as I64. */
static void put(const char *header, size_t floats, const int64_t *labels, size_t n) {
    FILE *file = fopen(path, "w");
    const uint64_t size = strlen(header);
    assert_non_null(file);
    fwrite(&size, sizeof size, 1, file);
    fwrite(header, 1, size, file);
    for (size_t i = 0; i < floats; i++) fwrite(&(float){(float)i}, sizeof(float), 1, file);
    fwrite(labels, sizeof *labels, n, file);
    assert_int_equal(fclose(file), 0);
}

static void put_images(const char *shape, const int64_t *labels) {
    char header[512];
    snprintf(header, sizeof header,
             "{\"pixel_values\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,480]},"
             "\"labels\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[480,504]}}",
             shape);
    put(header, (size_t)ROWS * VALUES, labels, ROWS);
}

static const int64_t good[ROWS] = {7, -100, 0};

static void check_batch(const sample_shape *shape) {
    const data_options o = {.type = "safetensors", .path = path, .batch = ROWS, .shape = *shape};
    data *d;
    dcp_error err = {0};
    if (data_open(&o, &d, &err) != DCP_OK) fail_msg("%s", err.message);
    assert_int_equal(data_samples(d), ROWS);
    float values[2 * VALUES];
    int32_t targets[2];
    uint64_t counted;
    const sample_batch out = {.values = values, .targets = targets};
    assert_int_equal(data_read(d, 3, ROWS + 1, 2, &out, &counted, NULL), DCP_OK); /* next epoch */
    assert_int_equal(counted, 1);
    assert_int_equal(targets[0], SAMPLE_IGNORE);
    assert_int_equal(targets[1], 0);
    for (int i = 0; i < 2 * VALUES; i++) assert_true(values[i] == (float)(VALUES + i));
    data_close(d);
}

static void gives_images_and_vectors(void **state) {
    (void)state;
    put_images("[3,2,4,5]", good);
    check_batch(&image);
    check_batch(&vector); /* flattened */
    put_images("[3,40]", good);
    check_batch(&vector);
}

static void refuses(const sample_shape *shape, const char *named) {
    const data_options o = {.type = "safetensors", .path = path, .batch = ROWS, .shape = *shape};
    data *d = NULL;
    dcp_error err = {0};
    assert_int_equal(data_open(&o, &d, &err), DCP_ERR_ARG);
    if (!strstr(err.message, named)) fail_msg("\"%s\" does not name %s", err.message, named);
}

static void says_what_is_wrong(void **state) {
    (void)state;
    put_images("[3,2,5,4]", good);
    refuses(&image, "pixel_values is [3,2,5,4], but the model requires [3,2,4,5]");
    put_images("[3,40]", good);
    refuses(&image, "pixel_values is [3,40], but the model requires [3,2,4,5]");
    put_images("[2,60]", good);
    refuses(&vector, "pixel_values has 2 rows, but train_batch_size is 3");
    put_images("[3,40]", (const int64_t[]){1, 10, 2});
    refuses(&vector, "labels holds 10 in row 1, but the model has only 10 classes");
    refuses(&tokens, "has no tensor input_ids");
    put("{\"pixel_values\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,24]}}", 0, good,
        ROWS);
    refuses(&vector, "pixel_values is I64, but must be F32");
    put("{\"labels\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,24]}}", 0, good, ROWS);
    refuses(&image, "has no tensor pixel_values");
}

static void tells_kinds_apart(void **state) {
    (void)state;
    const data_options o = {.type = "text", .path = path, .batch = ROWS, .shape = image};
    data *d = NULL;
    dcp_error err = {0};
    assert_int_equal(data_open(&o, &d, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "text gives tokens, but the model takes images"));
}

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_images_and_vectors),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(tells_kinds_apart),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
