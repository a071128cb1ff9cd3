/* Pieces of a tensor over 4 GiB: the fragments and parts of a box beyond byte 2^32 are where
 * independent arithmetic puts them, each byte once. No memory is touched. */
#include "move/piece.h"
#include "support/core_fixture.h"

#define COLUMNS 3000000019ULL
#define FILE_OFFSET (7ULL << 30)

typedef struct seen {
    const dcp_box *box;
    uint64_t bytes;
} seen;

/* An element is a byte. */
static int look(void *ctx, const move_fragment *f) {
    seen *s = ctx;
    uint64_t first = f->box_offset, last = f->box_offset + f->bytes - 1, width = s->box->count[1];
    assert_true(width == COLUMNS || first / width == last / width); /* one row */
    uint64_t row = s->box->start[0] + first / width, column = s->box->start[1] + first % width;
    assert_int_equal(f->dataset_offset, row * COLUMNS + column);
    assert_int_equal(f->file_offset, FILE_OFFSET + f->dataset_offset);
    s->bytes += f->bytes;
    return 0;
}

static void check(dcp_box box, int bulk) {
    dcp_tensor t = {"/model/large", DCP_U8, 2, {4, COLUMNS}};
    dcp_box whole = dcp_box_whole(&t);
    state_box memory = {.box = box, .rank = -1};
    move_piece p = {.file_offset = FILE_OFFSET, .bytes = dcp_tensor_bytes(&t), .box = &memory};
    seen s = {.box = &box};
    size_t first = 0;
    box_copy copy;
    assert_int_equal(core_box_copy_between(&copy, 2, 1, &whole, &box), 1);
    move_piece_set_copy(&p, &copy);
    assert_int_equal(p.bulk, bulk);
    assert_int_equal(move_bulk_parts(&p, 1, look, &s), 0);
    assert_true((s.bytes > 0) == bulk);
    uint64_t end = FILE_OFFSET + p.bytes, window = 1ULL << 30;
    for (uint64_t low = 0; low < end; low += window)
        assert_int_equal(move_fragments(&p, 1, &first, low, low + window, look, &s), 0);
    assert_int_equal(s.bytes, dcp_box_elems(&box, 2));
    free((void *)p.copy);
}

static void boxes_beyond_and_across_4_gib(void **state) {
    (void)state;
    check((dcp_box){{1, 1294967000}, {1, 600}}, 0);        /* across byte 2^32 */
    check((dcp_box){{1, 1200000001}, {1, 1700000000}}, 1); /* in large runs */
    check((dcp_box){{2, COLUMNS - 5}, {2, 5}}, 0);         /* the last columns */
    check((dcp_box){{1, COLUMNS - 700001}, {3, 700001}}, 1);
    check((dcp_box){{0, 0}, {4, COLUMNS}}, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(boxes_beyond_and_across_4_gib)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
