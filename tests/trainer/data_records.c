/* Records as samples: what counts, the order over several files, and what is wrong with such files.
 */
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
#include "random/random.h"
#include <dcp/safetensors.h>

enum { SEQUENCE = 6, VOCAB = 100, RECORDS = 4 };

/* Record i begins at starts[i]; its tokens are 10 i, 10 i + 1 ..., and those that are odd count. */
static const int64_t starts[RECORDS + 1] = {0, 3, 10, 12, 16};

typedef struct file_content {
    const char *ids_name;
    dcp_dtype ids_type;
    const uint32_t *ids;
    uint64_t tokens, masks;
    const uint8_t *mask;
    const int64_t *starts;
    uint64_t n_starts;
} file_content;

static void put(const char *path, const file_content *c) {
    const dcp_tensor tensors[] = {
        {.path = c->ids_name, .dtype = c->ids_type, .ndim = 1, .shape = {c->tokens}},
        {.path = "loss_mask", .dtype = DCP_U8, .ndim = 1, .shape = {c->masks}},
        {.path = "starts", .dtype = DCP_I64, .ndim = 1, .shape = {c->n_starts}}};
    dcp_st_writer *w;
    dcp_error err;
    if (dcp_st_create(path, tensors, 3, &w, &err) != DCP_OK) fail_msg("%s", err.message);
    assert_int_equal(dcp_st_write(w, c->ids, dcp_tensor_bytes(&tensors[0]), &err), DCP_OK);
    assert_int_equal(dcp_st_write(w, c->mask, c->masks, &err), DCP_OK);
    assert_int_equal(dcp_st_write(w, c->starts, c->n_starts * sizeof *c->starts, &err), DCP_OK);
    assert_int_equal(dcp_st_finish(w, &err), DCP_OK);
}

/* Records [first, end) of the above. */
static file_content content_of(int first, int end) {
    static uint32_t ids[64];
    static uint8_t mask[64];
    static int64_t own[RECORDS + 1];
    uint64_t n = 0;
    for (int i = first; i < end; i++) {
        own[i - first] = (int64_t)n;
        for (int64_t t = 0; t < starts[i + 1] - starts[i]; t++, n++) {
            ids[n] = (uint32_t)(10 * i + t);
            mask[n] = ids[n] % 2 == 1;
        }
    }
    own[end - first] = (int64_t)n;
    return (file_content){"input_ids", DCP_U32, ids, n, n, mask, own, (uint64_t)(end - first) + 1};
}

static void put_records(const char *path, int first, int end) {
    const file_content c = content_of(first, end);
    put(path, &c);
}

static int make_folder(void **state) {
    char dir[] = "records-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0) return -1;
    mkdir("two", 0777);
    put_records("two/a.safetensors", 0, 1);
    put_records("two/b.safetensors", 1, RECORDS);
    put_records("one.safetensors", 0, RECORDS);
    FILE *notes = fopen("two/notes.txt", "w");
    *state = strdup(dir);
    return fputs("no records", notes) < 0 || fclose(notes);
}

static int open_shape(const char *path, sample_shape shape, data **d, dcp_error *err) {
    const data_options o = {.type = "records", .path = path, .batch = 4, .shape = shape};
    return data_open(&o, d, err);
}

static int open_path(const char *path, uint64_t sequence, uint64_t vocab, data **d,
                     dcp_error *err) {
    return open_shape(
        path, (sample_shape){.tokens = sequence, .targets = sequence, .classes = vocab}, d, err);
}

static data *open_records(const char *path) {
    data *d;
    dcp_error err;
    if (open_path(path, SEQUENCE, VOCAB, &d, &err) != DCP_OK) fail_msg("%s: %s", path, err.message);
    return d;
}

/* Each token predicts the next one, which counts where it is odd; the rest of the sample is empty.
 */
static void check_sample(data *d, uint64_t seed, uint64_t g) {
    int32_t ids[SEQUENCE], targets[SEQUENCE];
    const sample_batch out = {.ids = ids, .targets = targets};
    uint64_t counted, odd = 0;
    const int record = (int)random_permute(g % RECORDS, RECORDS, seed, g / RECORDS);
    const int n = (int)(starts[record + 1] - starts[record]);
    assert_int_equal(data_read(d, seed, g, 1, &out, &counted, NULL), DCP_OK);
    for (int i = 0; i < SEQUENCE; i++) {
        const int id = 10 * record + i;
        odd += i + 1 < n && (id + 1) % 2;
        assert_int_equal(ids[i], i + 1 < n ? id : 0);
        assert_int_equal(targets[i], i + 1 < n && (id + 1) % 2 ? id + 1 : SAMPLE_IGNORE);
    }
    assert_int_equal(counted, odd);
}

static void samples_are_records(void **state) {
    (void)state;
    data *one = open_records("one.safetensors"), *two = open_records("two");
    assert_int_equal(data_samples(one), RECORDS);
    assert_int_equal(data_samples(two), RECORDS);
    assert_true(data_fingerprint(one) == data_fingerprint(two));
    for (uint64_t g = 0; g < 3 * RECORDS; g++) {
        check_sample(one, 7, g);
        check_sample(two, 7, g);
    }
    data_close(one);
    data_close(two);
}

enum { ROOM = 8, BINS = 2 };

static data *open_packed(const char *path) {
    data *d;
    dcp_error err;
    const sample_shape shape = {.tokens = ROOM, .targets = ROOM, .classes = VOCAB, .packed = 1};
    if (open_shape(path, shape, &d, &err) != DCP_OK) fail_msg("%s: %s", path, err.message);
    return d;
}

/* Records 1 and 0 fill a sample, records 3 and 2 half of one, whose rest counts for nothing. */
static void check_packed(data *d, uint64_t seed, uint64_t g) {
    static const int32_t expected[BINS][3][ROOM] = {{{10, 11, 12, 13, 14, 15, 0, 1},
                                                     {11, -100, 13, -100, 15, -100, 1, -100},
                                                     {0, 1, 2, 3, 4, 5, 0, 1}},
                                                    {{30, 31, 32, 20, 0, 0, 0, 0},
                                                     {31, -100, 33, 21, -100, -100, -100, -100},
                                                     {0, 1, 2, 0, 0, 1, 2, 3}}};
    int32_t ids[ROOM], targets[ROOM], places[ROOM];
    const sample_batch out = {.ids = ids, .targets = targets, .places = places};
    uint64_t counted;
    const uint64_t bin = random_permute(g % BINS, BINS, seed, g / BINS);
    assert_int_equal(data_read(d, seed, g, 1, &out, &counted, NULL), DCP_OK);
    assert_memory_equal(ids, expected[bin][0], sizeof ids);
    assert_memory_equal(targets, expected[bin][1], sizeof targets);
    assert_memory_equal(places, expected[bin][2], sizeof places);
    assert_int_equal(counted, bin ? 3 : 4);
}

static void packed_samples_are_several_records(void **state) {
    (void)state;
    data *one = open_packed("one.safetensors"), *two = open_packed("two"), *apart;
    uint64_t records;
    double share;
    assert_int_equal(open_path("two", ROOM, VOCAB, &apart, NULL), DCP_OK);
    assert_int_equal(data_samples(one), BINS);
    assert_true(data_fingerprint(one) == data_fingerprint(two));
    assert_true(data_fingerprint(one) != data_fingerprint(apart));
    for (uint64_t g = 0; g < 5 * BINS; g++) {
        check_packed(one, 7, g);
        check_packed(two, 7, g);
    }
    data_packed(two, &records, &share);
    assert_int_equal(records, RECORDS);
    assert_true(share == 12.0 / 16.0);
    data_close(one);
    data_close(two);
    data_close(apart);
}

static void a_mask_is_part_of_the_fingerprint(void **state) {
    (void)state;
    file_content c = content_of(0, RECORDS);
    uint8_t mask[64];
    memcpy(mask, c.mask, c.masks);
    mask[1] ^= 1;
    c.mask = mask;
    put("other.safetensors", &c);
    data *one = open_records("one.safetensors"), *other = open_records("other.safetensors");
    assert_true(data_fingerprint(one) != data_fingerprint(other));
    data_close(one);
    data_close(other);
}

static void refused(const char *path, uint64_t sequence, uint64_t vocab, const char *message) {
    data *d;
    dcp_error err = {.message = ""};
    if (open_path(path, sequence, vocab, &d, &err) == DCP_OK) fail_msg("%s is taken", path);
    if (!strstr(err.message, message)) fail_msg("%s, not %s", err.message, message);
}

static void refused_content(const file_content *c, const char *message) {
    put("wrong.safetensors", c);
    refused("wrong.safetensors", SEQUENCE, VOCAB, message);
}

static void says_what_is_wrong(void **state) {
    (void)state;
    const file_content right = content_of(0, RECORDS);
    static const int64_t late[] = {1, 16}, less[] = {0, 15}, down[] = {0, 9, 7, 16},
                         short_one[] = {0, 3, 4, 16}, far[] = {0, INT64_MAX, 16},
                         below[] = {0, INT64_MIN, 16}, one_alone[] = {0}, whole[] = {0, 16};
    uint8_t mask[64];
    file_content c = right;
    refused("nowhere", SEQUENCE, VOCAB, "nowhere: No such file");
    refused("two/notes.txt", SEQUENCE, VOCAB, "data.path: two/notes.txt");
    refused("one.safetensors", 5, VOCAB,
            "record 1 has 7 tokens, but a sample of data.sequence_length 5"
            " takes only 6: set data.sequence_length to 6");
    refused("one.safetensors", SEQUENCE, 33, "token 3 of record 3 is 33");
    c.ids_name = "ids";
    refused_content(
        &c, "wrong.safetensors: input_ids is missing; a file of records must have input_ids U32");
    c = right, c.ids_type = DCP_I32;
    refused_content(&c, "input_ids is I32; a file of records must have input_ids U32");
    c = right, c.masks = right.tokens - 1;
    refused_content(&c, "16 input_ids, 15 loss_mask and 5 starts");
    c = right, c.starts = one_alone, c.n_starts = 1;
    refused_content(&c, "16 loss_mask and 1 starts");
    c = right, c.starts = late, c.n_starts = 2;
    refused_content(&c, "starts begins with 1 and ends with 16, but must begin with 0 and end with "
                        "the length of input_ids, 16");
    c.starts = less;
    refused_content(&c, "starts begins with 0 and ends with 15");
    c.starts = whole;
    refused_content(&c, "record 0 has 16 tokens");
    c.starts = down, c.n_starts = 4;
    refused_content(&c, "record 0 has 9 tokens");
    c.starts = short_one;
    refused_content(&c, "starts of record 1 is 3, and that of the next record is 4; each must be "
                        "larger than the one before it by at least 2");
    c.starts = far, c.n_starts = 3;
    refused_content(&c,
                    "starts of record 0 is 0, and that of the next record is 9223372036854775807");
    c.starts = below;
    refused_content(&c,
                    "starts of record 0 is 0, and that of the next record is -9223372036854775808");
    memcpy(mask, right.mask, right.masks);
    mask[5] = 2;
    c = right, c.mask = mask;
    refused_content(&c, "token 2 of record 1 is 12 with mask 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_records),
        cmocka_unit_test(packed_samples_are_several_records),
        cmocka_unit_test(a_mask_is_part_of_the_fingerprint),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
