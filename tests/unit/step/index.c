/* The index: what is encoded is decoded again. Any other content of a file is refused, or is at
 * least a table of sorted, disjoint datasets within the file. */
#include "format/index.h"
#include "core/bytes.h"
#include "support/core_fixture.h"

#define FILE_BYTES (64ULL << 20)
#define ROWS 7

/* A table in memory of its own size, so that a read past its end is detected. */
struct table {
    format_userblock ub;
    unsigned char *bytes;
    uint64_t path_bytes;
};

static const dcp_box part = {{1, 0}, {2, 3}};

static struct table make_table(dcp_layout layout, format_row *rows) {
    static const struct {
        const char *path;
        dcp_dtype dtype;
        uint32_t ndim;
        uint64_t shape[DCP_MAX_DIMS], offset;
    } list[ROWS] = {{"/a/big", DCP_U8, 1, {9 << 20}, 1 << 20},
                    {"/a/eight", DCP_BF16, 8, {2, 1, 2, 1, 2, 1, 2, 3}, 8192},
                    {"/a/empty", DCP_F64, 2, {0, 5}, 0},
                    {"/a/matrix", DCP_F32, 2, {5, 3}, 8296},
                    {"/a/scalar", DCP_I64, 0, {1}, 8288},
                    {"/b/a-tensor-with-a-longer-name", DCP_BOOL, 1, {10}, 4096},
                    {"/b/c", DCP_F8_E4M3, 1, {4096}, 12288}};
    struct table t = {.ub = {.layout = layout, .file_bytes = FILE_BYTES, .rows = ROWS}};
    uint64_t blocks = 0;
    for (size_t i = 0; i < ROWS; i++) {
        dcp_tensor tensor = {list[i].path, list[i].dtype, list[i].ndim, {0}};
        memcpy(tensor.shape, list[i].shape, sizeof tensor.shape);
        rows[i] = (format_row){.tensor = tensor};
        if (layout == DCP_LAYOUT_SHARDED && i == 3) rows[i].box = &part;
        dcp_box box = format_index_row_box(&rows[i]);
        rows[i].bytes = dcp_box_elems(&box, tensor.ndim) * dcp_dtype_bytes(tensor.dtype);
        rows[i].offset = list[i].offset;
        rows[i].crc = any();
        rows[i].first_block = blocks;
        blocks += format_index_blocks(rows[i].bytes);
    }
    t.path_bytes = format_index_path_bytes(rows, ROWS);
    t.ub.row_bytes = format_index_row_bytes(t.path_bytes, layout);
    t.ub.index = (format_range){32 << 20, ROWS * t.ub.row_bytes, 0};
    t.ub.blocks = (format_range){33 << 20, 8 * blocks, 0};
    t.ub.meta = (format_range){34 << 20, 65536, 0};
    t.bytes = malloc(t.ub.index.bytes);
    assert_non_null(t.bytes);
    format_index_encode(rows, ROWS, t.path_bytes, layout, t.bytes);
    return t;
}

static int decode(const struct table *t, format_row **rows) {
    dcp_error err = {0};
    int status = format_index_decode(t->bytes, &t->ub, "file", 0, rows, &err);
    assert_int_equal(err.status, status);
    if (status) assert_non_null(strstr(err.message, "file: index: "));
    return status;
}

static void what_is_encoded_comes_back(void **state) {
    (void)state;
    for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        format_row rows[ROWS], *back;
        struct table t = make_table(layout, rows);
        assert_int_equal(t.path_bytes, 32);
        assert_int_equal(t.ub.row_bytes, layout ? 260 : 132);
        assert_int_equal(decode(&t, &back), DCP_OK);
        for (size_t i = 0; i < ROWS; i++) {
            assert_string_equal(back[i].tensor.path, rows[i].tensor.path);
            assert_int_equal(back[i].tensor.dtype, rows[i].tensor.dtype);
            assert_int_equal(back[i].tensor.ndim, rows[i].tensor.ndim);
            assert_memory_equal(back[i].tensor.shape, rows[i].tensor.shape, 64);
            dcp_box box = format_index_row_box(&rows[i]), again = format_index_row_box(&back[i]);
            assert_memory_equal(&again, &box, sizeof box);
            assert_int_equal(back[i].offset, rows[i].offset);
            assert_int_equal(back[i].bytes, rows[i].bytes);
            assert_int_equal(back[i].crc, rows[i].crc);
            assert_int_equal(back[i].first_block, rows[i].first_block);
        }
        free(back);
        free(t.bytes);
    }
}

static void an_empty_table_is_one(void **state) {
    (void)state;
    format_userblock ub = {.file_bytes = 8192,
                           .row_bytes = format_index_row_bytes(16, DCP_LAYOUT_GLOBAL)};
    ub.index = ub.blocks = (format_range){4096, 0, 0};
    ub.meta = (format_range){4096, 4096, 0};
    format_row *rows;
    assert_int_equal(format_index_path_bytes(NULL, 0), 16);
    assert_int_equal(format_index_decode((const unsigned char *)"", &ub, "file", 0, &rows, NULL),
                     DCP_OK);
    free(rows);
}

enum {
    HIDDEN = -8,
    DTYPE = 0,
    NDIM = 8,
    SHAPE = 12,
    OFFSET = 76,
    BYTES = 84,
    START = 100,
    COUNT = 164
};
#define PATH (-1)

/* One field of one row with an impossible value. `text`: for path or dtype. */
static const struct mutation {
    size_t row;
    int field;
    uint64_t value;
    const char *text;
    int only; /* 1: in layout sharded, -1: in layout global */
} mutations[] = {
    {1, PATH, 0, "/a/a", 0},       /* not sorted */
    {1, PATH, 0, "/a/big", 0},     /* twice */
    {1, PATH, 0, "a/bigger", 0},   /* no slash */
    {1, PATH, 0, "/a/d/../e", 0},  /* leaves its folder */
    {1, PATH, 0, "", 0},           /* none */
    {1, PATH, 0, "/a/big/x", 0},   /* in a tensor */
    {6, PATH, 0, "/dcp/index", 0}, /* reserved */
    {1, PATH, 0, "/a/c\xff", 0},   /* no UTF-8 */
    {1, DTYPE, 0, "BF17", 0},      /* unknown */
    {1, DTYPE, 0, "F32", 0},       /* size contradicts */
    {1, NDIM, 9, NULL, 0},
    {1, NDIM, 7, NULL, 0},
    {1, NDIM, UINT32_MAX, NULL, 0},
    {0, SHAPE, (9 << 20) + 1, NULL, -1},
    {0, SHAPE, 1ULL << 62, NULL, 0},
    {0, SHAPE, UINT64_MAX, NULL, 0},
    {1, SHAPE + 8, 1ULL << 63, NULL, 0},       /* products overflow */
    {1, SHAPE + 8, (1ULL << 63) + 1, NULL, 0}, /* and wrap to what was there */
    {2, SHAPE, 1, NULL, -1},
    {2, SHAPE + 8, UINT64_MAX, NULL, 0}, /* an empty one, too */
    {2, OFFSET, 8192, NULL, 0},          /* no bytes, no offset */
    {3, OFFSET, 0, NULL, 0},
    {3, OFFSET, 4095, NULL, 0},            /* in the user block */
    {3, OFFSET, FILE_BYTES - 23, NULL, 0}, /* past the end */
    {3, OFFSET, FILE_BYTES, NULL, 0},
    {3, OFFSET, UINT64_MAX, NULL, 0},
    {3, OFFSET, UINT64_MAX - 59, NULL, 0}, /* its end wraps */
    {3, OFFSET, 8290, NULL, 0},            /* into the scalar */
    {3, OFFSET, 4096, NULL, 0},            /* on another dataset */
    {3, OFFSET, (32 << 20) + 5, NULL, 0},  /* in the index */
    {3, OFFSET, (33 << 20) + 16, NULL, 0}, /* in the blocks */
    {3, OFFSET, (34 << 20) - 1, NULL, 0},  /* into the JSON */
    {3, BYTES, 0, NULL, 0},
    {3, BYTES, 61, NULL, 0},
    {0, BYTES, UINT64_MAX, NULL, 0},
    {0, BYTES, 5 << 20, NULL, 0},
    {3, START, 4, NULL, 1},
    {3, START, UINT64_MAX, NULL, 1},
    {3, COUNT, 5, NULL, 1},
    {3, COUNT, 1, NULL, 1},
    {3, COUNT, 0, NULL, 1},
    {3, COUNT + 8, UINT64_MAX, NULL, 1},
    {2, COUNT, 1, NULL, 1},
    {4, HIDDEN, 'x', NULL, 0},                 /* after the path's NUL */
    {3, DTYPE + 4, 2ULL << 32 | 'x', NULL, 0}, /* after the dtype's */
    {0, SHAPE + 8, 1, NULL, 0},                /* beyond ndim */
    {4, START, 1, NULL, 1},
    {0, COUNT + 56, 1, NULL, 1},
};

static void mutate(struct table *t, const struct mutation *m) {
    unsigned char *row = t->bytes + m->row * t->ub.row_bytes, *fields = row + t->path_bytes;
    if (m->field == PATH) {
        memset(row, 0, t->path_bytes);
        memcpy(row, m->text, strlen(m->text));
    } else if (m->field == DTYPE) {
        memset(fields, 0, 8);
        memcpy(fields, m->text, strlen(m->text));
    } else if (m->field == NDIM) {
        core_put_u32(fields + NDIM, (uint32_t)m->value);
    } else {
        core_put_u64(fields + m->field, m->value);
    }
}

static void each_field_is_checked(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++)
        for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
            const struct mutation *m = &mutations[i];
            if (m->only == (layout == DCP_LAYOUT_GLOBAL ? 1 : -1)) continue;
            format_row rows[ROWS], *back = NULL;
            struct table t = make_table(layout, rows);
            mutate(&t, m);
            int status = decode(&t, &back);
            if (status != DCP_ERR_CORRUPT)
                fail_msg("mutation %zu in layout %d: status %d", i, (int)layout, status);
            free(t.bytes);
        }
}

static void tables_of_other_sizes(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        format_row rows[ROWS], *back;
        struct table t = make_table(DCP_LAYOUT_GLOBAL, rows);
        format_userblock *ub = &t.ub;
        if (i == 0) ub->row_bytes = 0;
        if (i == 1) ub->row_bytes = 100; /* no path */
        if (i == 2) ub->row_bytes = 99;
        if (i == 3) ub->row_bytes = 100 + 24;
        if (i == 4) ub->row_bytes = 100 + 2048;
        if (i == 5) ub->blocks.bytes -= 8;
        if (i == 6) ub->blocks.bytes += 8;
        if (i == 7) { /* paths of 48 bytes, none longer than 32 */
            ub->row_bytes += 16;
            ub->index.bytes = ROWS * ub->row_bytes;
            free(t.bytes);
            t.bytes = malloc(ub->index.bytes);
            format_index_encode(rows, ROWS, t.path_bytes + 16, ub->layout, t.bytes);
        }
        if (i < 5) ub->rows = ub->row_bytes ? ub->index.bytes / ub->row_bytes : 0;
        assert_int_equal(decode(&t, &back), DCP_ERR_CORRUPT);
        free(t.bytes);
    }
}

/* What is accepted after random damage can be used without harm. */
static void random_damage_does_no_harm(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        format_row rows[ROWS], *back;
        struct table t = make_table(round % 2 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL, rows);
        for (uint64_t n = between(1, 4); n > 0; n--)
            t.bytes[between(0, t.ub.index.bytes - 1)] = (unsigned char)(any() >> between(0, 7));
        if (decode(&t, &back) == DCP_OK) {
            for (size_t i = 0; i < ROWS; i++) {
                assert_true(back[i].offset + back[i].bytes <= FILE_BYTES);
                assert_true(!i || strcmp(back[i - 1].tensor.path, back[i].tensor.path) < 0);
                assert_true(back[i].bytes <= dcp_tensor_bytes(&back[i].tensor));
            }
            free(back);
        }
        free(t.bytes);
    }
}

/* Reads as for a large table: a false row is detected in its step, and only there. */
static void steps_find_the_false_row(void **state) {
    (void)state;
    format_row rows[ROWS];
    struct table t = make_table(DCP_LAYOUT_GLOBAL, rows);
    assert_int_equal(format_index_check_rows(t.bytes, 0, ROWS, &t.ub, "file", NULL), DCP_OK);
    memset(t.bytes + 4 * t.ub.row_bytes, 0, 3 * t.ub.row_bytes); /* a hole */
    assert_int_equal(format_index_check_rows(t.bytes, 0, 4, &t.ub, "file", NULL), DCP_OK);
    for (uint64_t first = 0; first <= 4; first++) {
        dcp_error err = {0};
        assert_int_equal(format_index_check_rows(t.bytes, first, 5, &t.ub, "file", &err),
                         DCP_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "index: row 4"));
    }
    free(t.bytes);
}

static void further_pieces_are_named_with_an_at(void **state) {
    (void)state;
    assert_int_equal(format_index_tensor_path("/m/w"), 4);
    assert_int_equal(format_index_tensor_path("/m/w@1"), 4);
    assert_int_equal(format_index_tensor_path("/m/w@120"), 4);
    assert_int_equal(format_index_tensor_path("/m/w@"), 5);
    assert_int_equal(format_index_tensor_path("/m/w@x1"), 7);
    assert_int_equal(format_index_tensor_path("/m/w@2@1"), 6);
    assert_int_equal(format_index_tensor_path("/m@1/w"), 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_comes_back),
        cmocka_unit_test(an_empty_table_is_one),
        cmocka_unit_test(each_field_is_checked),
        cmocka_unit_test(tables_of_other_sizes),
        cmocka_unit_test(random_damage_does_no_harm),
        cmocka_unit_test(steps_find_the_false_row),
        cmocka_unit_test(further_pieces_are_named_with_an_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
