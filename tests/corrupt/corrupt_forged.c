/* Numbers that no writer wrote, with correct checksums: opening, loading and verification refuse
 * each, and say what is wrong, in bounded memory and time. */
#include "refused.h"

#include "forge.h"
#include "steps.h"

#define BLOCK (-1) /* a field of the user block, not a row of the index */
#define MANY (1ULL << 40)
#define TOP UINT64_MAX
#define PATH (-1000)

/* Sets a u64, or writes text into a path or dtype. */
typedef struct edit {
    int row, field;
    uint64_t value;
    const char *text, *part;
} edit;

/* Rows: 0 /files/sub/vocab.txt, 2 /model/big.weight, 6 /model/empty, 9 /model/layer.0.f32 of 4
 * dimensions, 11 /model/norm, 12 a scalar. */
static const edit both_layouts[] = {
    {BLOCK, UB_LAYOUT, 7, NULL, "user block: its layout is unknown"},
    {BLOCK, UB_FILE, 0, NULL, ": size: "},
    {BLOCK, UB_FILE, TOP, NULL, ": size: "},
    {BLOCK, UB_FILE, 1ULL << 63, NULL, ": size: "},
    {BLOCK, UB_ROWS, 0, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_ROWS, 25, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_ROWS, MANY, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_ROWS, TOP, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_ROW, 0, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_ROW, TOP, NULL, "user block: the index does not have the size of its rows"},
    {BLOCK, UB_INDEX, 0, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX, 4095, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX, 8193, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX, MANY, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX, TOP - 4095, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX + 8, MANY, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_INDEX + 8, TOP, NULL, "user block: the index lies outside the file"},
    {BLOCK, UB_BLOCKS, 0, NULL, "user block: the blocks table lies outside the file"},
    {BLOCK, UB_BLOCKS, TOP - 4095, NULL, "user block: the blocks table lies outside the file"},
    {BLOCK, UB_BLOCKS + 8, TOP, NULL, "user block: the blocks table lies outside the file"},
    {BLOCK, UB_BLOCKS + 8, 23, NULL, "user block: the blocks table does not have the size"},
    {BLOCK, UB_BLOCKS + 8, 8, NULL, "but the blocks table has 1"},
    {BLOCK, UB_META, 0, NULL, "user block: meta lies outside the file"},
    {BLOCK, UB_META, TOP - 4095, NULL, "user block: meta lies outside the file"},
    {BLOCK, UB_META + 8, TOP, NULL, "user block: meta lies outside the file"},
    {BLOCK, UB_META + 8, 0, NULL, ": meta: not a JSON object"},
    {BLOCK, UB_META + 8, 20, NULL, ": meta: not a JSON object"},
    {BLOCK, 2000, 1, NULL, "user block: bytes that should be zero are not"},
    {0, PATH, 0, "files/sub/vocab.txt", "index: row 0 is not valid: it must begin with '/'"},
    {0, PATH, 0, "/../../etc/passwd", "'.' or '..' component"},
    {0, PATH, 0, "/a/../../etc/passwd", "'.' or '..' component"},
    {0, PATH, 0, "/a/..", "'.' or '..' component"},
    {0, PATH, 0, "/a/./b", "'.' or '..' component"},
    {0, PATH, 0, "/a//b", "has an empty"},
    {0, PATH, 0, "/a/b/", "has an empty"},
    {0, PATH, 0, "/vocab.txt", "it needs a section"},
    {0, PATH, 0, "/dcp/index", "/dcp is reserved"},
    {0, PATH, 0, "/a/\xc0\xae\xc0\xae/b", "it is not UTF-8"},
    {0, PATH, 0, "/a/\xff", "it is not UTF-8"},
    {0, PATH, 0, "", "index: row 0 is not valid"},
    {0, PATH, 0, "/model/z", "index: row 1 is not valid: its path does not follow"},
    {12, PATH, 0, "/model/norm", "index: row 12 is not valid: its path does not follow"},
    {12, PATH, 0, "/model/norm/x", "dataset /model/norm is the folder of /model/norm/x"},
    {11, -8, 'x', NULL, "index: row 11 is not valid: bytes that should be zero"},
    {11, DTYPE, 0, "F33", "index: row 11 is not valid: its dtype is unknown"},
    {11, DTYPE, 0, "F64", "index: row 11 is not valid: its size does not match its shape"},
    {11, NDIM, 9, NULL, "index: row 11 is not valid: it has more than 8 dimensions"},
    {11, NDIM, UINT32_MAX, NULL, "more than 8 dimensions"},
    {11, NDIM, 0, NULL, "index: row 11 is not valid"},
    {11, SHAPE, TOP, NULL, "index: row 11 is not valid: its shape overflows"},
    {9, SHAPE + 8, 1ULL << 62, NULL, "index: row 9 is not valid: its shape overflows"},
    {9, SHAPE + 16, (1ULL << 63) + 2, NULL, "index: row 9 is not valid: its shape overflows"},
    {6, SHAPE + 8, TOP, NULL, "index: row 6 is not valid: its shape overflows"},
    {11, SHAPE + 8, 1, NULL, "bytes that should be zero are not"},
    {11, BYTES, 0, NULL, "index: row 11 is not valid: its size does not match its shape"},
    {11, BYTES, 13, NULL, "index: row 11 is not valid: its size does not match its shape"},
    {11, BYTES, TOP, NULL, "index: row 11 is not valid: its size does not match its shape"},
    {11, OFFSET, 0, NULL, "index: row 11 is not valid: its data lies outside the file"},
    {11, OFFSET, 4092, NULL, "index: row 11 is not valid: its data lies outside the file"},
    {11, OFFSET, MANY, NULL, "index: row 11 is not valid: its data lies outside the file"},
    {11, OFFSET, TOP - 11, NULL, "index: row 11 is not valid: its data lies outside the file"},
    {6, OFFSET, 8192, NULL, "index: row 6 is not valid: it has an offset, but no bytes"},
};

static const edit boxes[] = {
    {11, START, 1, NULL, "index: row 11 is not valid: its box lies outside of its tensor"},
    {11, START, TOP - 1, NULL, "its box lies outside of its tensor"},
    {11, COUNT, 4, NULL, "its box lies outside of its tensor"},
    {11, COUNT, TOP, NULL, "its box lies outside of its tensor"},
    {11, COUNT, 2, NULL, "index: row 11 is not valid: its size does not match its shape"},
    {11, START + 8, 1, NULL, "bytes that should be zero are not"},
    {11, SHAPE, 5, NULL, "tensor /model/norm: the shards don't cover it exactly once"},
};

static void apply(forge *f, const edit *e) {
    uint64_t at = e->row == BLOCK    ? (uint64_t)e->field
                  : e->field == PATH ? forge_row_at(f, (uint64_t)e->row)
                                     : forge_column_at(f, (uint64_t)e->row, e->field);
    if (e->text) {
        memset(f->bytes + at, 0, e->field == PATH ? forge_path_bytes(f) : 8);
        memcpy(f->bytes + at, e->text, strlen(e->text));
    } else if (e->field == (e->row == BLOCK ? (int)UB_LAYOUT : (int)NDIM)) {
        core_put_u32(f->bytes + at, (uint32_t)e->value);
    } else {
        core_put_u64(f->bytes + at, e->value);
    }
}

static void check_edits(const char *step, const char *file, const edit *edits, size_t n) {
    forge f;
    assert_int_equal(forge_open(&f, step, file), 0);
    for (size_t i = 0; i < n; i++) {
        char what[80];
        snprintf(what, sizeof what, "%s: edit %zu (row %d, field %d)", file, i, edits[i].row,
                 edits[i].field);
        apply(&f, &edits[i]);
        assert_int_equal(forge_put(&f), 0);
        expect_refused(what, step, DCP_ERR_CORRUPT, edits[i].part);
        assert_int_equal(forge_restore(&f), 0);
    }
    forge_close(&f);
    expect_loads(step);
}

static void numbers_of_a_global_file(void **state) {
    (void)state;
    check_edits(global, "state.h5", both_layouts, sizeof both_layouts / sizeof *both_layouts);
}

static void numbers_of_a_shard(void **state) {
    (void)state;
    const char *file = "shard-00000-of-00001.h5";
    check_edits(sharded, file, both_layouts, sizeof both_layouts / sizeof *both_layouts);
    check_edits(sharded, file, boxes, sizeof boxes / sizeof *boxes);
}

/* Two datasets at the same position, a dataset over a table, two tables at the same position. */
static void overlaps(void **state) {
    (void)state;
    forge f;
    assert_int_equal(forge_open(&f, global, "state.h5"), 0);
    uint64_t norm = forge_column_at(&f, 11, OFFSET), big = forge_column(&f, 2, OFFSET);
    const struct {
        uint64_t at, value;
        const char *part;
    } cases[] = {
        {norm, forge_column(&f, 4, OFFSET), "datasets /model/"},
        {norm, big + 4, "index: datasets /model/big.weight and /model/norm overlap"},
        {norm, big + forge_column(&f, 2, BYTES) - 1, "/model/norm overlap"},
        {norm, forge_at(&f, UB_INDEX), "index: dataset /model/norm overlaps a table"},
        {norm, forge_at(&f, UB_INDEX) - 11, "index: dataset /model/norm overlaps a table"},
        {norm, forge_at(&f, UB_BLOCKS) + 8, "index: dataset /model/norm overlaps a table"},
        {norm, forge_at(&f, UB_META) + 65536 - 12, "index: dataset /model/norm overlaps a table"},
        {UB_BLOCKS, forge_at(&f, UB_INDEX), "user block: tables overlap"},
        {UB_META, forge_at(&f, UB_INDEX), "user block: tables overlap"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[80];
        snprintf(what, sizeof what, "overlap %zu", i);
        core_put_u64(f.bytes + cases[i].at, cases[i].value);
        assert_int_equal(forge_put(&f), 0);
        expect_refused(what, global, DCP_ERR_CORRUPT, cases[i].part);
        assert_int_equal(forge_restore(&f), 0);
    }
    forge_close(&f);
}

/* Numbers that a sparse file makes possible: it has every size that a table claims. */
static void sparse_files(void **state) {
    (void)state;
    forge f;
    assert_int_equal(forge_open(&f, global, "state.h5"), 0);
    uint64_t row = core_get_u64(f.real + UB_ROW), end = f.n, far = 1ULL << 42;
    const struct {
        int table;
        uint64_t rows, bytes;
        const char *part;
    } cases[] = {
        {UB_INDEX, MAX_ROWS, MAX_ROWS * row, "index: row 0 is not valid"},
        {UB_INDEX, MAX_ROWS + 1, (MAX_ROWS + 1) * row, "user block: no index has that many rows"},
        {UB_INDEX, far / 2 / row, far / 2 / row * row, "user block: no index has that many rows"},
        {UB_BLOCKS, TINY_TENSORS, far / 2, "user block: the blocks table does not have the size"},
        {UB_META, TINY_TENSORS, far / 2, "user block: no meta is that large"},
        {UB_META, TINY_TENSORS, MAX_META_BYTES, ": meta: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[80];
        snprintf(what, sizeof what, "sparse %zu", i);
        if (ftruncate(f.fd, (off_t)far)) skip(); /* a file system without such files */
        core_put_u64(f.bytes + UB_FILE, far);
        core_put_u64(f.bytes + UB_ROWS, cases[i].rows);
        core_put_u64(f.bytes + cases[i].table, end);
        core_put_u64(f.bytes + cases[i].table + 8, cases[i].bytes);
        assert_int_equal(forge_put(&f), 0);
        expect_refused(what, global, DCP_ERR_CORRUPT, cases[i].part);
        assert_int_equal(forge_restore(&f), 0);
    }
    forge_close(&f);
    expect_loads(global);
}

/* Checksums of blocks and of tensors that do not match the data. */
static void sums_of_other_data(void **state) {
    (void)state;
    forge f;
    findings found;
    assert_int_equal(forge_open(&f, global, "state.h5"), 0);
    f.bytes[forge_at(&f, UB_BLOCKS) + 8 * 3] ^= 1; /* the second block of big.weight */
    assert_int_equal(forge_put(&f), 0);
    expect_refused("a block's", global, DCP_ERR_CORRUPT, "tensor /model/big.weight, block 1");
    assert_int_equal(forge_restore(&f), 0);
    f.bytes[forge_column_at(&f, 11, CRC)] ^= 1;
    assert_int_equal(forge_put(&f), 0);
    assert_int_equal(findings_of(global, &found), DCP_ERR_CORRUPT);
    assert_non_null(
        strstr(found.text, "tensor /model/norm: its checksum is not that of its block"));
    assert_int_equal(forge_restore(&f), 0);
    forge_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_global_file),
        cmocka_unit_test(numbers_of_a_shard),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(sparse_files),
        cmocka_unit_test(sums_of_other_data),
    };
    return cmocka_run_group_tests(tests, make_steps, remove_steps);
}
