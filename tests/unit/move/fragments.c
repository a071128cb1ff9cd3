/* Fragments and interiors together are every byte of every piece once, wherever the file is cut,
 * even if holders of the pieces take turns. */
#include "move/domain.h"
#include "support/core_fixture.h"

#define MOST 12

/* For each byte of the file, which byte of which piece's box is still missing; 0: none. */
struct file {
    move_piece pieces[MOST];
    size_t n;
    uint64_t bytes, *due;
};

static uint64_t token(const struct file *f, const move_piece *p, uint64_t box_offset) {
    return ((uint64_t)(p - f->pieces) << 40 | box_offset) + 1;
}

/* Adds a box of a dataset at the file's end. With row_bytes, its rows have so many bytes. */
static void add_piece(struct file *f, uint64_t row_bytes) {
    uint64_t shape[DCP_MAX_DIMS], origin[DCP_MAX_DIMS] = {0}, size = 1;
    uint32_t ndim = any_shape(shape);
    if (row_bytes) {
        ndim = 2;
        shape[0] = between(1, 4);
        shape[1] = row_bytes;
    }
    dcp_box box = any_box(ndim, shape, 0);
    if (row_bytes && any() % 2) { /* whole rows: one run */
        box.start[1] = 0;
        box.count[1] = shape[1];
    }
    for (uint32_t d = 0; d < ndim; d++) size *= shape[d];
    f->bytes = any() % 3 ? (f->bytes + 4095) / 4096 * 4096 : f->bytes + between(0, 300);
    move_piece *p = &f->pieces[f->n++];
    *p = (move_piece){.file_offset = f->bytes, .bytes = size};
    box_copy copy;
    core_box_copy_init(&copy, ndim, 1, box.count, shape, box.start, box.count, origin);
    move_piece_set_copy(p, &copy);
    assert_non_null(p->copy);
    f->bytes += size;
}

static void any_file(struct file *f, int large) {
    memset(f, 0, sizeof *f);
    f->bytes = 4096;
    for (uint64_t n = between(1, large ? 3 : MOST); n > 0; n--)
        add_piece(f, large ? between(1, 3) * between(400000, 700000) : 0);
    f->due = calloc(f->bytes, sizeof *f->due);
    assert_non_null(f->due);
    for (size_t i = 0; i < f->n; i++) {
        const move_piece *p = &f->pieces[i];
        for (uint64_t run = 0, a, b; run < p->copy->runs; run++) {
            core_box_copy_run(p->copy, run, &a, &b);
            for (uint64_t k = 0; k < p->copy->run_bytes; k++)
                f->due[p->file_offset + a + k] = token(f, p, b + k);
        }
    }
}

static void file_free(struct file *f) {
    for (size_t i = 0; i < f->n; i++) free((void *)f->pieces[i].copy);
    free(f->due);
}

static void take(struct file *f, const move_piece *p, uint64_t at, uint64_t box_offset,
                 uint64_t bytes) {
    for (uint64_t k = 0; k < bytes; k++) {
        if (f->due[at + k] != token(f, p, box_offset + k))
            fail_msg("byte %llu of the file came twice or from elsewhere",
                     (unsigned long long)(at + k));
        f->due[at + k] = 0;
    }
}

struct range {
    struct file *file;
    uint64_t low, high, last;
    const move_piece *piece;
};

static int fragment_comes(void *ctx, const move_fragment *f) {
    struct range *r = ctx;
    assert_true(f->bytes > 0);
    assert_true(f->file_offset >= r->low && f->file_offset + f->bytes <= r->high);
    assert_int_equal(f->dataset_offset, f->file_offset - f->piece->file_offset);
    if (r->piece == f->piece) assert_true(f->file_offset >= r->last);
    r->piece = f->piece;
    r->last = f->file_offset + f->bytes;
    take(r->file, f->piece, f->file_offset, f->box_offset, f->bytes);
    return 0;
}

static void take_interiors(struct file *f) {
    for (size_t i = 0; i < f->n; i++) {
        const move_piece *p = &f->pieces[i];
        for (uint64_t run = 0, a, b, from, to; p->bulk && run < p->copy->runs; run++) {
            core_box_copy_run(p->copy, run, &a, &b);
            move_piece_interior(p, run, &from, &to);
            assert_int_equal(from % PAGE_BYTES, 0);
            assert_int_equal(to % PAGE_BYTES, 0);
            take(f, p, from, b + (from - p->file_offset - a), to - from);
        }
    }
}

static void every_byte_comes_once(void **state) {
    (void)state;
    int bulk = 0;
    for (int round = 0; round < 420; round++) {
        struct file f;
        size_t first = 0;
        int large = round % 14 == 0;
        any_file(&f, large);
        uint64_t most = large ? 200 : 3;
        for (uint64_t low = 0, high; low < f.bytes; low = high) {
            high = low + 4096 * between(1, most);
            struct range r = {.file = &f, .low = low, .high = high};
            assert_int_equal(move_fragments(f.pieces, f.n, &first, low, high, fragment_comes, &r),
                             0);
        }
        take_interiors(&f);
        for (uint64_t i = 0; i < f.bytes; i++) assert_int_equal(f.due[i], 0);
        for (size_t i = 0; i < f.n; i++) bulk += f.pieces[i].bulk;
        file_free(&f);
    }
    assert_true(bulk > 5);
}

/* Skips some whole pages, which are subtracted from what is missing. */
static void skip_some(struct file *f, move_span *spans, move_span_list *skip) {
    *skip = (move_span_list){.list = spans};
    for (uint64_t at = 4096 * between(0, 40); at < f->bytes && skip->n < MOST;) {
        uint64_t end = at + 4096 * between(1, any() % 4 ? 5 : 300);
        spans[skip->n++] = (move_span){at, end};
        for (uint64_t i = at; i < end && i < f->bytes; i++) f->due[i] = 0;
        at = end + 4096 * between(1, 200);
    }
    for (size_t i = 0; i < f->n; i++) f->pieces[i].skip = skip;
}

static int part_comes(void *ctx, const move_fragment *f) {
    assert_true(f->bytes > 0 && f->piece->bulk);
    assert_int_equal(f->file_offset % PAGE_BYTES, 0);
    assert_int_equal(f->dataset_offset, f->file_offset - f->piece->file_offset);
    assert_true(f->dataset_offset % BLOCK_BYTES + f->bytes <= BLOCK_BYTES);
    take(ctx, f->piece, f->file_offset, f->box_offset, f->bytes);
    return DCP_OK;
}

static void skipped_pages_never_come(void **state) {
    (void)state;
    int parts = 0;
    for (int round = 0; round < 200; round++) {
        struct file f;
        move_span spans[MOST];
        move_span_list skip;
        size_t first = 0;
        any_file(&f, round % 8 == 0);
        skip_some(&f, spans, &skip);
        struct range r = {.file = &f, .high = f.bytes};
        assert_int_equal(move_fragments(f.pieces, f.n, &first, 0, f.bytes, fragment_comes, &r), 0);
        assert_int_equal(move_bulk_parts(f.pieces, f.n, part_comes, &f), DCP_OK);
        for (uint64_t i = 0; i < f.bytes; i++) assert_int_equal(f.due[i], 0);
        for (size_t i = 0; i < f.n; i++) parts += f.pieces[i].bulk && skip.n > 0;
        file_free(&f);
    }
    assert_true(parts > 5);
}

static int count_others(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    uint64_t *next = ctx;
    assert_true(bytes > 0 && offset >= next[0]);
    assert_true(offset + bytes <= p->copy->runs * p->copy->run_bytes);
    next[0] = offset + bytes;
    next[1] += bytes;
    return DCP_OK;
}

/* What one holder supplies comes from no other. Returns its bytes. */
static uint64_t come_by_turn(struct file *f, uint16_t turn, uint16_t holders) {
    struct range r = {.file = f, .high = f->bytes};
    uint64_t supplied = 0;
    size_t first = 0;
    for (size_t i = 0; i < f->n; i++) {
        move_piece *p = &f->pieces[i];
        uint64_t others[2] = {0};
        p->turn = turn;
        p->holders = holders;
        assert_int_equal(move_piece_walk_others(p, count_others, others), DCP_OK);
        assert_int_equal(move_piece_supplied(p) + others[1], p->copy->runs * p->copy->run_bytes);
        supplied += move_piece_supplied(p);
    }
    assert_int_equal(move_fragments(f->pieces, f->n, &first, 0, f->bytes, fragment_comes, &r), 0);
    assert_int_equal(move_bulk_parts(f->pieces, f->n, part_comes, f), DCP_OK);
    return supplied;
}

static void holders_take_turns(void **state) {
    (void)state;
    int many = 0;
    for (int round = 0; round < 60; round++) {
        struct file f;
        uint64_t all = 0, supplied = 0;
        uint16_t holders = (uint16_t)between(2, 5);
        any_file(&f, round % 2);
        for (size_t i = 0; i < f.n; i++)
            all += f.pieces[i].copy->runs * f.pieces[i].copy->run_bytes;
        for (uint16_t turn = 0; turn < holders; turn++) {
            uint64_t part = come_by_turn(&f, turn, holders);
            many += part > 0 && part < all;
            supplied += part;
        }
        assert_int_equal(supplied, all);
        for (uint64_t i = 0; i < f.bytes; i++) assert_int_equal(f.due[i], 0);
        assert_int_equal(come_by_turn(&f, UINT16_MAX, holders), 0); /* its turn never comes */
        file_free(&f);
    }
    assert_true(many > 20);
}

static int note(void *ctx, const move_fragment *f) {
    (void)f;
    *(int *)ctx = 1;
    return 7;
}

/* The windows are exactly those with fragments. */
static void windows_are_those_with_fragments(void **state) {
    (void)state;
    dcp_comm *comm;
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    for (int round = 0; round < 60; round++) {
        struct file f;
        move_windows w;
        any_file(&f, round % 3 == 0);
        assert_int_equal(move_windows_find(comm, f.pieces, f.n, f.bytes, NULL, 1, &w, NULL),
                         DCP_OK);
        size_t first = 0, at = 0;
        for (uint64_t i = 0; i * w.window_bytes < f.bytes; i++) {
            int found = 0, stop = move_fragments(f.pieces, f.n, &first, i * w.window_bytes,
                                                 (i + 1) * w.window_bytes, note, &found);
            assert_int_equal(stop, found ? 7 : 0);
            if (found) assert_true(at < w.n && w.list[at++] == i);
        }
        assert_int_equal(at, w.n);
        move_windows_free(&w);
        file_free(&f);
    }
    dcp_comm_destroy(comm);
}

enum { RANKS = 3 };

static int reduce_alone(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    (void)ctx, (void)buf, (void)count, (void)op;
    return 0;
}
static int broadcast_alone(void *ctx, void *buf, uint64_t bytes, int root) {
    (void)ctx, (void)buf, (void)bytes, (void)root;
    return 0;
}
static int gather_alone(void *ctx, const void *send, uint64_t bytes, void *receive, int root) {
    (void)ctx, (void)send, (void)bytes, (void)receive, (void)root;
    return 0;
}
static int send_alone(void *ctx, const void *send, const uint64_t *bytes, void *receive,
                      const uint64_t *receive_bytes) {
    (void)ctx, (void)send, (void)bytes, (void)receive, (void)receive_bytes;
    return 0;
}
static int wait_alone(void *ctx) {
    (void)ctx;
    return 0;
}

/* Which rank writes to each page of that size. */
struct writers {
    uint64_t page_bytes;
    int *writers; /* per page; -1: nobody yet */
    int writer, shared;
};

static int note_writer(void *ctx, const move_fragment *f) {
    struct writers *w = ctx;
    uint64_t last = (f->file_offset + f->bytes - 1) / w->page_bytes;
    for (uint64_t page = f->file_offset / w->page_bytes; page <= last; page++) {
        w->shared += w->writers[page] >= 0 && w->writers[page] != w->writer;
        w->writers[page] = w->writer;
    }
    return 0;
}

/* Counts the pages of the file to which two ranks write. Each piece belongs to another rank. */
static int count_shared(dcp_comm *comm, const struct file *f, uint64_t page_bytes) {
    struct writers pages = {page_bytes, malloc((f->bytes / page_bytes + 1) * sizeof(int)), 0, 0};
    size_t first = 0;
    move_windows w;
    assert_non_null(pages.writers);
    memset(pages.writers, 0xff, (f->bytes / page_bytes + 1) * sizeof(int));
    assert_int_equal(move_windows_find(comm, f->pieces, f->n, f->bytes, NULL, 1, &w, NULL), DCP_OK);
    for (size_t i = 0; i < f->n; i++) {
        pages.writer = (int)(i % RANKS);
        move_bulk_parts(&f->pieces[i], 1, note_writer, &pages);
    }
    for (uint64_t i = 0; i * w.window_bytes < f->bytes; i++)
        for (int k = 0; k < w.width; k++) {
            const move_domain d = move_windows_domain(&w, i, k);
            pages.writer = d.aggregator->rank;
            move_fragments(f->pieces, f->n, &first, d.start, d.end, note_writer, &pages);
        }
    move_windows_free(&w);
    free(pages.writers);
    return pages.shared;
}

/* On a kernel with pages of 64 KiB; bulk in pages of 4 KiB would share some of them. */
static void no_page_has_two_writers(void **state) {
    (void)state;
    const dcp_comm_ops ops = {.size = sizeof ops,
                              .broadcast = broadcast_alone,
                              .allreduce = reduce_alone,
                              .gather = gather_alone,
                              .alltoall = send_alone,
                              .barrier = wait_alone};
    dcp_comm *comm;
    int shared = 0;
    assert_int_equal(dcp_comm_from_ops(&ops, NULL, 0, RANKS, &comm, NULL), DCP_OK);
    for (int round = 0; round < 30; round++) {
        struct file f;
        any_file(&f, 1);
        for (size_t i = 0; i < f.n; i++) f.pieces[i].page_bytes = 4096;
        assert_int_equal(count_shared(comm, &f, 4096), 0);
        shared += count_shared(comm, &f, 65536);
        for (size_t i = 0; i < f.n; i++) f.pieces[i].page_bytes = 65536;
        assert_int_equal(count_shared(comm, &f, 65536), 0);
        file_free(&f);
    }
    assert_true(shared > 0);
    dcp_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_once),
        cmocka_unit_test(skipped_pages_never_come),
        cmocka_unit_test(holders_take_turns),
        cmocka_unit_test(windows_are_those_with_fragments),
        cmocka_unit_test(no_page_has_two_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
