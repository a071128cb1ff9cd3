/* With pages as large as a block, each bulk part is one page of the file, wherever the dataset
 * begins. The parts follow each other, and the rest of the run is fragments. */
#include "format/index.h"
#include "move/piece.h"
#include "support/core_fixture.h"

#define FILE_OFFSET ((uint64_t)3 * 4096)
#define BYTES ((uint64_t)5 * BLOCK_BYTES + 1000)

typedef struct walk {
    uint64_t next, fragments;
} walk;

static int part_comes(void *ctx, const move_fragment *f) {
    walk *w = ctx;
    assert_int_equal(f->file_offset, w->next);
    assert_int_equal(f->bytes, BLOCK_BYTES);
    assert_int_equal(f->dataset_offset, f->file_offset - FILE_OFFSET);
    assert_int_equal(f->box_offset, f->dataset_offset);
    w->next += f->bytes;
    return 0;
}

static int fragment_comes(void *ctx, const move_fragment *f) {
    walk *w = ctx;
    w->fragments += f->bytes;
    return 0;
}

static void parts_are_pages(void **state) {
    (void)state;
    const box_copy copy = {.run_bytes = BYTES, .runs = 1};
    move_piece p = {.file_offset = FILE_OFFSET, .bytes = BYTES};
    walk w = {.next = BLOCK_BYTES};
    size_t first = 0;
    move_piece_set_copy(&p, &copy);
    assert_true(p.bulk);
    p.page_bytes = BLOCK_BYTES;
    assert_int_equal(move_bulk_parts(&p, 1, part_comes, &w), DCP_OK);
    assert_int_equal(w.next, 5 * BLOCK_BYTES);
    move_fragments(&p, 1, &first, 0, FILE_OFFSET + BYTES, fragment_comes, &w);
    assert_int_equal(w.fragments, BYTES - 4 * BLOCK_BYTES);
    free((void *)p.copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
