/* The HDF5 metadata built in memory: a function of its arguments, whose parts are where other code
 * expects them. */
#include "h5/skeleton.h"
#include "support/core_fixture.h"

#include <malloc.h>

#define MOST 400

struct plan {
    format_row rows[MOST];
    char paths[MOST][40];
    size_t n;
    uint64_t meta_bytes;
};

static void any_rows(struct plan *p, size_t n) {
    static const char *const folders[] = {"/files", "/model", "/model/layers/0", "/optimizer/a"};
    memset(p, 0, sizeof *p);
    p->n = n;
    p->meta_bytes = 65536 * between(1, 2);
    uint64_t blocks = 0;
    for (size_t i = 0; i < n; i++) {
        format_row *r = &p->rows[i];
        snprintf(p->paths[i], sizeof p->paths[i], "%s/w%05zu", folders[4 * i / n], i);
        r->tensor.path = p->paths[i];
        r->tensor.dtype = (dcp_dtype)between(1, DCP_DTYPE_COUNT - 1);
        r->tensor.ndim = any() % 9 ? any_shape(r->tensor.shape) : 0;
        if (any() % 9 == 0) r->tensor.shape[0] = 0;
        if (any() % 20 == 0) r->tensor.shape[0] *= 5000;
        if (!r->tensor.ndim) r->tensor.shape[0] = 1;
        r->bytes = dcp_tensor_bytes(&r->tensor);
        r->first_block = blocks;
        blocks += format_index_blocks(r->bytes);
    }
}

static h5_skeleton build(struct plan *p) {
    h5_skeleton s;
    dcp_error err = {0};
    if (h5_skeleton_build(p->rows, p->n, DCP_LAYOUT_GLOBAL, p->meta_bytes, NULL, &s, &err))
        fail_msg("%s", err.message);
    return s;
}

/* The extent of a table or dataset, or of a run. `whole`: it shares no page. */
struct extent {
    uint64_t offset, bytes;
    int whole;
};

static int by_offset(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static size_t extents(const struct plan *p, const h5_skeleton *s, struct extent *out) {
    size_t n = 0;
    const format_range *tables[] = {&s->index, &s->blocks, &s->meta};
    for (int t = 0; t < 3; t++)
        if (tables[t]->bytes) out[n++] = (struct extent){tables[t]->offset, tables[t]->bytes, 1};
    for (size_t i = 0; i < p->n; i++)
        if (p->rows[i].bytes) out[n++] = (struct extent){p->rows[i].offset, p->rows[i].bytes, 0};
    for (size_t i = 0; i < s->n_runs; i++)
        out[n++] = (struct extent){s->runs[i].offset, s->runs[i].bytes, 0};
    qsort(out, n, sizeof *out, by_offset);
    return n;
}

static void check_places(const struct plan *p, const h5_skeleton *s) {
    struct extent *all = malloc((p->n + s->n_runs + 3) * sizeof *all);
    size_t n = extents(p, s, all);
    uint64_t end = USERBLOCK_BYTES;
    for (size_t i = 0; i < n; i++) {
        assert_true(all[i].offset >= end);
        if (all[i].whole) assert_int_equal(all[i].offset % PAGE_BYTES, 0);
        end = all[i].offset + all[i].bytes;
        if (all[i].whole) end = (end + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    }
    assert_true(end <= s->file_bytes);
    assert_true(s->file_bytes - end < 2 * PAGE_BYTES);
    assert_int_equal(s->file_bytes % PAGE_BYTES, 0);
    for (size_t i = 0; i < p->n; i++) {
        if (!p->rows[i].bytes) assert_int_equal(p->rows[i].offset, 0);
        if (p->rows[i].bytes >= PAGE_BYTES) assert_int_equal(p->rows[i].offset % PAGE_BYTES, 0);
    }
    free(all);
}

static void tables_have_their_pages_for_themselves(void **state) {
    (void)state;
    static struct plan p;
    for (int round = 0; round < 25; round++) {
        any_rows(&p, round < 5 ? (size_t)round : between(1, MOST));
        h5_skeleton s = build(&p);
        check_places(&p, &s);
        h5_skeleton_free(&s);
    }
}

static void assert_same(const h5_skeleton *a, const h5_skeleton *b) {
    assert_int_equal(a->file_bytes, b->file_bytes);
    assert_memory_equal(&a->index, &b->index, 16);
    assert_memory_equal(&a->blocks, &b->blocks, 16);
    assert_memory_equal(&a->meta, &b->meta, 16);
    assert_int_equal(a->n_runs, b->n_runs);
    for (size_t i = 0; i < a->n_runs; i++) {
        assert_int_equal(a->runs[i].offset, b->runs[i].offset);
        assert_int_equal(a->runs[i].bytes, b->runs[i].bytes);
        assert_memory_equal(a->runs[i].data, b->runs[i].data, a->runs[i].bytes);
    }
}

/* malloc returns memory with different bytes each time, none of which may get into a file. */
static void equal_arguments_give_equal_bytes(void **state) {
    (void)state;
    static struct plan p, q;
    for (int round = 0; round < 8; round++) {
        any_rows(&p, between(1, MOST));
        q = p;
        for (size_t i = 0; i < p.n; i++) q.rows[i].tensor.path = q.paths[i];
        mallopt(M_PERTURB, 0x55);
        h5_skeleton a = build(&p);
        mallopt(M_PERTURB, 0xaa - round);
        h5_skeleton b = build(&q);
        mallopt(M_PERTURB, 0);
        assert_same(&a, &b);
        for (size_t i = 0; i < p.n; i++) assert_int_equal(p.rows[i].offset, q.rows[i].offset);
        h5_skeleton_free(&a);
        h5_skeleton_free(&b);
    }
}

/* One path is another one's folder; one path occurs twice. */
static void what_hdf5_refuses_is_an_error(void **state) {
    (void)state;
    static const char *const second[] = {"/m/a/b", "/m/a"};
    for (int i = 0; i < 2; i++) {
        format_row rows[2] = {{.tensor = {"/m/a", DCP_F32, 1, {4}}, .bytes = 16},
                              {.tensor = {second[i], DCP_F32, 1, {4}}, .bytes = 16}};
        h5_skeleton s;
        dcp_error err = {0};
        assert_int_equal(h5_skeleton_build(rows, 2, DCP_LAYOUT_GLOBAL, 65536, NULL, &s, &err),
                         DCP_ERR_IO);
        assert_non_null(strstr(err.message, "/m/a"));
        assert_null(strstr(err.message, "no detail"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_have_their_pages_for_themselves),
        cmocka_unit_test(equal_arguments_give_equal_bytes),
        cmocka_unit_test(what_hdf5_refuses_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
