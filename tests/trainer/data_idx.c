/* Images and labels from idx files: which files belong together, types and shapes, and a specific
 * message for each way in which such a file can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data.h"
#include "data_folder.h"

#define IMAGES_FILE "bad-images-idx3"
#define LABELS_FILE "bad-labels-idx1"

enum { SIDE = 4, PIXELS = SIDE * SIDE, CLASSES = 10, IMAGES = 25 };

static const sample_shape image = {
    .ndim = 3, .dims = {1, SIDE, SIDE}, .targets = 1, .classes = CLASSES};
static const sample_shape vector = {.ndim = 1, .dims = {PIXELS}, .targets = 1, .classes = CLASSES};

static void put(const char *path, const void *head, size_t head_bytes, const void *body, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, head_bytes, file), head_bytes);
    assert_int_equal(fwrite(body, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Image i is filled with the byte first + i, and its class is that byte % CLASSES. */
static void put_pair(const char *images, const char *labels, int first, int n) {
    const uint8_t head3[] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    const uint8_t head1[] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)n};
    uint8_t pixels[256 * PIXELS], classes[256];
    for (int i = 0; i < n; i++) {
        memset(pixels + i * PIXELS, first + i, PIXELS);
        classes[i] = (uint8_t)((first + i) % CLASSES);
    }
    put(images, head3, sizeof head3, pixels, (size_t)n * PIXELS);
    put(labels, head1, sizeof head1, classes, (size_t)n);
}

static int make_folder(void **state) {
    char dir[] = "idx-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0) return -1;
    mkdir("mnist", 0777);
    mkdir("parts", 0777);
    put_pair("mnist/train-images-idx3-ubyte", "mnist/train-labels-idx1-ubyte", 0, IMAGES);
    put_pair("mnist/t10k-images-idx3-ubyte", "mnist/t10k-labels-idx1-ubyte", 100, 3);
    put_pair("parts/a.images.bin", "parts/a.labels.bin", 0, 7);
    put_pair("parts/b.images.bin", "parts/b.labels.bin", 7, IMAGES - 7);
    put("parts/notes", "text", 4, "", 0);
    *state = strdup(dir);
    return 0;
}

static int open_idx(const char *path, const sample_shape *shape, data **out, dcp_error *err) {
    const data_options o = {.type = "idx", .path = path, .batch = 4, .shape = *shape};
    return data_open(&o, out, err);
}

static data *opened(const char *path, const sample_shape *shape) {
    data *d;
    dcp_error err;
    if (open_idx(path, shape, &d, &err) != DCP_OK) fail_msg("%s: %s", path, err.message);
    return d;
}

static void expect_message(const char *path, const char *message) {
    data *d;
    dcp_error err;
    const int status = open_idx(path, &image, &d, &err);
    assert_int_not_equal(status, DCP_OK);
    if (!strstr(err.message, message)) fail_msg("%s: %s, not %s", path, err.message, message);
}

static void images_come_with_their_labels(void **state) {
    (void)state;
    static const char *const paths[] = {"mnist", "parts", "parts/*.images.bin",
                                        "mnist/train-images-idx3-ubyte"};
    int32_t order[4][2 * IMAGES];
    for (size_t p = 0; p < 4; p++) {
        data *d = opened(paths[p], p % 2 ? &vector : &image);
        assert_int_equal(data_samples(d), IMAGES);
        int seen[IMAGES] = {0};
        for (uint64_t g = 0; g < 2 * IMAGES; g++) {
            float pixels[PIXELS];
            const sample_batch out = {.values = pixels, .targets = &order[p][g]};
            uint64_t counted;
            assert_int_equal(data_read(d, 3, g, 1, &out, &counted, NULL), DCP_OK);
            assert_int_equal(counted, 1);
            const int byte = (int)lroundf(pixels[0] * 255);
            for (int i = 0; i < PIXELS; i++) assert_true(pixels[i] == (float)byte / 255.0f);
            assert_int_equal(order[p][g], byte % CLASSES);
            seen[byte]++;
        }
        for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 2); /* once an epoch */
        assert_memory_equal(order[p], order[0], sizeof *order);        /* however they are found */
        data_close(d);
    }
    assert_memory_not_equal(order[0], order[0] + IMAGES, IMAGES * sizeof **order);
    data *test = opened("mnist/t10k-images-idx3-ubyte", &image);
    assert_int_equal(data_samples(test), 3);
    data_close(test);
}

/* [n, channels, height, width] as fp32 and fp64, and labels of 4 bytes. */
static void other_types_are_taken_as_they_are(void **state) {
    (void)state;
    const sample_shape two = {.ndim = 3, .dims = {2, 1, 1}, .targets = 1, .classes = 70000};
    const uint8_t head4[] = {0, 0, 0x0d, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1};
    const uint8_t floats[] = {0xbf, 0xc0, 0, 0, 0x40, 0x49, 0x0f, 0xdb}; /* -1.5, pi */
    const uint8_t doubles[] = {0xbf, 0xf8, 0,    0,    0,    0,    0,    0,
                               0x40, 9,    0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18};
    const uint8_t head1[] = {0, 0, 0x0c, 1, 0, 0, 0, 1}, label[] = {0, 1, 0, 5};
    put("labels-idx1", head1, sizeof head1, label, sizeof label);
    put("images-idx4", head4, sizeof head4, floats, sizeof floats);
    for (int wide = 0; wide < 2; wide++) {
        data *d = opened("images-idx4", &two);
        float values[2];
        int32_t target;
        const sample_batch out = {.values = values, .targets = &target};
        uint64_t counted;
        assert_int_equal(data_read(d, 3, 0, 1, &out, &counted, NULL), DCP_OK);
        assert_true(values[0] == -1.5f && values[1] == 3.14159274f);
        assert_int_equal(target, 65541);
        data_close(d);
        uint8_t head[sizeof head4];
        memcpy(head, head4, sizeof head);
        head[2] = 0x0e;
        put("images-idx4", head, sizeof head, doubles, sizeof doubles);
    }
}

#define BYTES(text) text, sizeof text - 1

/* Each is the good pair of files of 26 images with one thing changed. */
static void says_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *file, *message;
        long at; /* where the bytes go */
        const char *bytes;
        size_t n;
        long end; /* and then the file's end, where it is not 0 */
    } cases[] = {
        {IMAGES_FILE, "is compressed; unpack it with gunzip", 0, BYTES("\x1f\x8b\x08\0"), 0},
        {IMAGES_FILE, "not an idx file of 1 to 4 dimensions: it begins with 89", 0,
         BYTES("\x89PNG"), 0},
        {IMAGES_FILE, "begins with 00 00 0a 03", 2, BYTES("\x0a"), 0},
        {IMAGES_FILE, "begins with 00 00 08 05", 3, BYTES("\x05"), 0},
        {IMAGES_FILE, "begins with 00 00 08 00", 3, BYTES("\0"), 0},
        {IMAGES_FILE, "holds 431 bytes, but its header describes 26 x 4 x 4 elements of 1", 0,
         BYTES(""), 431},
        {IMAGES_FILE, "holds 433 bytes, but its header describes", 0, BYTES(""), 433},
        {IMAGES_FILE, "holds 9 bytes, but its header describes", 0, BYTES(""), 9},
        {IMAGES_FILE, "begins with 00 00 00 00", 0, BYTES(""), 1},
        {IMAGES_FILE, "4294967295 x 4294967295 x 4294967295 elements", 4,
         BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 0},
        {IMAGES_FILE, "0 x 4 x 4", 4, BYTES("\0\0\0\0"), 0},
        {IMAGES_FILE, "is 2 x 8, but the model takes 1 x 4 x 4", 8, BYTES("\0\0\0\x02\0\0\0\x08"),
         0},
        {LABELS_FILE, "holds 26 images, but bad-labels-idx1 holds 25 labels", 7, BYTES("\x19"), 33},
        {LABELS_FILE, "holds 33 bytes, but its header describes 26 elements", 0, BYTES(""), 33},
        {LABELS_FILE, "the label at byte 25 is 10, but the model has only 10", 25, BYTES("\x0a"),
         0},
        {LABELS_FILE, "the label at byte 25 is -1, but the model has only 10", 2,
         BYTES("\x09\x01\0\0\0\x1a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff"), 0},
        {LABELS_FILE, "holds no labels", 0, BYTES("\0\0\x0d\x01\0\0\0\x01\0\0\0\0"), 12},
        {LABELS_FILE, "holds no labels", 0, BYTES("\0\0\x08\x02\0\0\0\x0d\0\0\0\x02"), 38},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_pair(IMAGES_FILE, LABELS_FILE, 0, 26);
        FILE *file = fopen(cases[i].file, "r+");
        assert_non_null(file);
        assert_int_equal(fseek(file, cases[i].at, SEEK_SET), 0);
        assert_int_equal(fwrite(cases[i].bytes, 1, cases[i].n, file), cases[i].n);
        assert_int_equal(fclose(file), 0);
        if (cases[i].end) assert_int_equal(truncate(cases[i].file, cases[i].end), 0);
        expect_message(IMAGES_FILE, cases[i].message);
    }
}

static void says_which_file_is_missing(void **state) {
    (void)state;
    mkdir("other", 0777);
    put("other/labels", "", 0, "", 0);
    put("other/train-images.gz", "\x1f\x8b", 2, "", 0);
    expect_message("nowhere", "nowhere: No such file");
    expect_message("other", "none of the 1 files of other has \"images\" in its name");
    expect_message("other/train-images.gz", "is compressed");
    put_pair("other/alone-images", "other/of-another", 0, 3);
    expect_message("other", "no labels beside other/alone-images");
    put("other/alone-labels", "", 0, "", 0);
    expect_message("other/alone-images", "other/alone-labels is empty");
    expect_message("other/labels", "other/labels is empty");
    put_pair("other/alone-images", "other/alone-labels", 0, 3);
    put("other/b-images", "\0\0\x08\x02\0\0\0\x01\0\0\0\x10", 12, "0123456789abcdef", 16);
    put("other/b-labels", "\0\0\x08\x01\0\0\0\x01", 8, "\0", 1);
    expect_message("other", "other/b-images has elements or dimensions that differ from those of "
                            "other/alone-images");
}

/* What an epoch may meet only after days is found when its image comes. */
static void refuses_numbers_that_are_none(void **state) {
    (void)state;
    const sample_shape two = {.ndim = 1, .dims = {2}, .targets = 1, .classes = 2};
    put("nan-images", "\0\0\x0d\x02\0\0\0\x01\0\0\0\x02", 12, "\0\0\0\0\x7f\0\0\0", 8);
    put("nan-labels", "\0\0\x08\x01\0\0\0\x01", 8, "\x01", 1);
    data *d = opened("nan-images", &two);
    put("nan-images", "\0\0\x0d\x02\0\0\0\x01\0\0\0\x02", 12, "\0\0\0\0\x7f\x80\0\0", 8);
    float values[2];
    int32_t target;
    const sample_batch out = {.values = values, .targets = &target};
    uint64_t counted;
    dcp_error err;
    assert_int_equal(data_read(d, 3, 0, 1, &out, &counted, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "nan-images: the number at byte 16 is not finite"));
    data_close(d);
    assert_int_equal(open_idx("nan-images", &two, &d, &err), DCP_ERR_ARG); /* by its checksum */
    assert_non_null(strstr(err.message, "nan-images: the number at byte 16 is not finite"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_with_their_labels),
        cmocka_unit_test(other_types_are_taken_as_they_are),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(says_which_file_is_missing),
        cmocka_unit_test(refuses_numbers_that_are_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
