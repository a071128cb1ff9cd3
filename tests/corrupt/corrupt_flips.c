/* A verification finds any flipped bit of a checkpoint, and names the tensor and the block, or the
 * structure: tested for every structure of both layouts, and for a thousand random bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "steps.h"

static void expect_intact(const char *step) {
    findings f;
    assert_int_equal(findings_of(step, &f), DCP_OK);
    assert_int_equal(f.n, 0);
}

static void expect_found(const victim *v, const char *step, size_t at, int bit, const char *part,
                         const char *other) {
    findings f;
    assert_int_equal(victim_flip(v, at, bit), 0);
    int status = findings_of(step, &f);
    assert_int_equal(victim_mend(v, at), 0);
    if (status != DCP_ERR_CORRUPT || f.n == 0)
        fail_msg("byte %zu of %s, bit %d: status %d, %zu damages", at, v->path, bit, status, f.n);
    if (!strstr(f.text, part) || !strstr(f.text, other))
        fail_msg("byte %zu of %s: '%s' and '%s' are not in: %s", at, v->path, part, other, f.text);
}

static const struct {
    const char *needle;
    size_t bytes, skip;
    const char *part;
} structures[] = {
    {"\x89HDF\r\n\x1a\n", 8, 0, "HDF5"},   /* the superblock */
    {"\x89HDF\r\n\x1a\n", 8, 9, "HDF5"},   /* */
    {"TREE", 4, 0, "HDF5"},                /* a group's B-tree */
    {"HEAP", 4, 5, "HDF5"},                /* names of links */
    {"SNOD", 4, 8, "HDF5"},                /* a group's entries */
    {"/model/big.weight", 17, 3, "index"}, /* a row of the index */
    {"/optimizer/exp_avg/f8.e5m2", 26, 40, "index"} /* after its path */,
    {"\"samples\"", 9, 2, "meta"}, /* the JSON */
};

static void check_structures(const victim *v, const char *step, const char *file) {
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++) {
        size_t at = victim_find(v, structures[i].needle, structures[i].bytes);
        assert_true(at < v->n);
        expect_found(v, step, at + structures[i].skip, (int)i, structures[i].part, file);
    }
    for (size_t at = 0; at < 4096; at += 37)
        expect_found(v, step, at, (int)(at % 8), "user block", file);
}

static void every_structure_of_a_global_file(void **state) {
    (void)state;
    victim v;
    assert_int_equal(victim_open(&v, global, "state.h5"), 0);
    check_structures(&v, global, "state.h5");
    size_t meta = victim_find(&v, "\"samples\"", 9);
    expect_found(&v, global, meta + 60000, 1, "meta", "state.h5"); /* its padding */
    expect_found(&v, global, v.n - 1, 0, "", "state.h5");
    victim_close(&v);
    expect_intact(global);
}

static void every_structure_of_a_shard(void **state) {
    (void)state;
    victim v;
    assert_int_equal(victim_open(&v, sharded, "shard-00000-of-00001.h5"), 0);
    check_structures(&v, sharded, "shard-00000-of-00001.h5");
    victim_close(&v);
    expect_intact(sharded);
}

static void every_byte_of_about_json(void **state) {
    (void)state;
    victim v;
    assert_int_equal(victim_open(&v, global, "about.json"), 0);
    for (size_t at = 0; at < v.n; at++)
        expect_found(&v, global, at, (int)(at % 8), "about.json", "");
    victim_close(&v);
    expect_intact(global);
}

/* First, middle and last byte of each tensor. */
static void check_tensors(const char *step, const char *file) {
    static unsigned char data[8 << 20];
    victim v;
    assert_int_equal(victim_open(&v, step, file), 0);
    for (size_t t = 0; t < TINY_TENSORS; t++) {
        const dcp_tensor *tensor = tiny_tensor(t);
        uint64_t bytes = dcp_tensor_bytes(tensor);
        if (bytes == 0) continue;
        tiny_fill(t, data);
        size_t at = victim_find(&v, data, bytes);
        assert_true(at < v.n);
        expect_found(&v, step, at, 7, tensor->path, "block 0");
        expect_found(&v, step, at + bytes / 2, 0, tensor->path, "block 0");
        expect_found(&v, step, at + bytes - 1, 3, tensor->path,
                     bytes > 4 << 20 ? "block 1" : "block 0");
    }
    victim_close(&v);
    expect_intact(step);
}

static void every_tensor(void **state) {
    (void)state;
    check_tensors(global, "state.h5");
    check_tensors(sharded, "shard-00000-of-00001.h5");
}

/* Half of them anywhere, half outside of the one large tensor. */
static void a_thousand_random_bytes(void **state) {
    (void)state;
    static unsigned char data[8 << 20];
    victim v;
    assert_int_equal(victim_open(&v, global, "state.h5"), 0);
    tiny_fill(2, data);
    uint64_t big_bytes = dcp_tensor_bytes(tiny_tensor(2)), x = 12345;
    size_t big = victim_find(&v, data, big_bytes);
    for (int i = 0; i < 1000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(x >> 16) % (i % 2 ? v.n : v.n - big_bytes);
        if (i % 2 == 0 && at >= big) at += big_bytes;
        expect_found(&v, global, at, (int)(x >> 8 & 7), "", "state.h5");
    }
    victim_close(&v);
    expect_intact(global);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_structure_of_a_global_file),
        cmocka_unit_test(every_structure_of_a_shard),
        cmocka_unit_test(every_byte_of_about_json),
        cmocka_unit_test(every_tensor),
        cmocka_unit_test(a_thousand_random_bytes),
    };
    return cmocka_run_group_tests(tests, make_steps, remove_steps);
}
