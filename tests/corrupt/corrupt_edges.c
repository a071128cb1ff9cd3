/* A file that ends at an edge of one of its structures, or a byte before or after it, is refused
 * because of its size; if the user block is forged to give that size, because of what then lies
 * outside. */
#include "refused.h"

#include "forge.h"

static char root[] = "/tmp/dcp-edges-XXXXXX";

typedef struct edges {
    uint64_t at[256];
    size_t n;
} edges;

static void add_edge(edges *e, uint64_t at) {
    assert_true(e->n < sizeof e->at / sizeof *e->at);
    e->at[e->n++] = at;
}

static void add_range(edges *e, uint64_t at, uint64_t bytes) {
    add_edge(e, at);
    add_edge(e, at + bytes);
}

/* Every position of a signature of HDF5's structures. */
static void add_metadata(edges *e, const forge *f) {
    static const char *const signatures[] = {"\x89HDF\r\n\x1a\n", "TREE", "HEAP", "SNOD"};
    for (size_t s = 0; s < sizeof signatures / sizeof *signatures; s++) {
        const unsigned char *end = f->real + f->n, *at = f->real;
        size_t bytes = strlen(signatures[s]);
        while ((at = memmem(at, (size_t)(end - at), signatures[s], bytes))) {
            add_edge(e, (uint64_t)(at - f->real));
            at += bytes;
        }
    }
}

static void find_edges(const forge *f, edges *e) {
    e->n = 0;
    add_edge(e, USERBLOCK_BYTES);
    add_metadata(e, f);
    for (uint64_t i = 0; i < core_get_u64(f->real + UB_ROWS); i++)
        if (forge_column(f, i, BYTES))
            add_range(e, forge_column(f, i, OFFSET), forge_column(f, i, BYTES));
    add_range(e, forge_at(f, UB_INDEX), forge_length(f, UB_INDEX));
    add_range(e, forge_at(f, UB_BLOCKS), forge_length(f, UB_BLOCKS));
    const unsigned char *meta = f->real + forge_at(f, UB_META);
    add_range(e, forge_at(f, UB_META), (uint64_t)(strchr((const char *)meta, ' ') - (char *)meta));
    add_edge(e, f->n - PAGE_BYTES);
}

static int descending(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* Runs in one child: hundreds of cases, each shorter than the previous one. */
typedef struct cut_cases {
    forge *f;
    const edges *edges;
    const char *step;
    int forged; /* the user block gives the file's actual size */
} cut_cases;

static int check_cut(const cut_cases *c, uint64_t size, uint64_t *shortest) {
    forge *f = c->f;
    refused r = {.step = c->step, .part = ": size: ", .status = DCP_ERR_CORRUPT};
    if (size >= *shortest) return 0;
    *shortest = size;
    alarm(LIMIT_SECONDS); /* for each case */
    int wrong = ftruncate(f->fd, (off_t)size) != 0;
    if (c->forged && size >= USERBLOCK_BYTES) {
        core_put_u64(f->bytes + UB_FILE, size);
        core_put_u64(f->bytes + USERBLOCK_BYTES - 8, core_crc64(f->bytes, USERBLOCK_BYTES - 8));
        wrong |= pwrite(f->fd, f->bytes, USERBLOCK_BYTES, 0) != USERBLOCK_BYTES;
        r.part = size % PAGE_BYTES ? "user block: the file's size is no multiple of a page"
                                   : "outside the file";
    }
    wrong = wrong || refused_check(&r);
    if (wrong) fprintf(stderr, "cut at byte %llu\n", (unsigned long long)size);
    return wrong;
}

static int check_cuts(void *ctx) {
    const cut_cases *c = ctx;
    uint64_t shortest = c->f->n;
    int wrong = 0;
    for (size_t i = 0; i < c->edges->n && !wrong; i++)
        for (int d = 1; d >= -1 && !wrong; d--)
            wrong = check_cut(c, (uint64_t)((int64_t)c->edges->at[i] + d), &shortest);
    return wrong;
}

static void cuts_of(const char *name, dcp_layout layout, const char *file) {
    char dir[64], step[128];
    edges e;
    forge f;
    dcp_comm *comm;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    snprintf(step, sizeof step, "%s/step-00000003", dir);
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(tiny_save(comm, dir, 3, layout, NULL), DCP_OK);
    dcp_comm_destroy(comm);
    assert_int_equal(forge_open(&f, step, file), 0);
    find_edges(&f, &e);
    assert_true(e.n > 50);
    qsort(e.at, e.n, sizeof *e.at, descending);
    for (int forged = 0; forged <= 1; forged++) {
        cut_cases c = {.f = &f, .edges = &e, .step = step, .forged = forged};
        assert_int_equal(under_limits(check_cuts, &c), 0);
        memset(f.bytes, 0, f.n); /* so that everything is written again */
        assert_int_equal(forge_restore(&f), 0);
    }
    forge_close(&f);
    expect_loads(step);
}

static void cuts_of_a_global_file(void **state) {
    (void)state;
    cuts_of("g", DCP_LAYOUT_GLOBAL, "state.h5");
}

static void cuts_of_a_shard(void **state) {
    (void)state;
    cuts_of("s", DCP_LAYOUT_SHARDED, "shard-00000-of-00001.h5");
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    remove_folder_tree(root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_of_a_global_file),
        cmocka_unit_test(cuts_of_a_shard),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
