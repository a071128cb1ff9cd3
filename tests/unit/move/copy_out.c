/* If somebody waits for the memory, the rest is copied once no more than the budget remains: the
 * memory may change afterwards, while file and checksums are those of before. */
#include <stdbool.h>

#include "core/crc64.h"
#include "format/index.h"
#include "io/queue.h"
#include "move/engine_direct.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "support/core_fixture.h"
#include "support/store_fixture.h"

#define BYTES (7 * BLOCK_BYTES + 2 * PAGE_BYTES)

typedef struct run {
    uint64_t budget, awaited_from; /* bytes written when somebody begins to wait */
    uint64_t released_at, told;    /* results */
    int releases;
    unsigned char *data;
    move_progress progress;
} run;

static bool is_awaited(void *ctx) {
    const run *r = ctx;
    return r->progress.done >= r->awaited_from;
}

static void on_released(void *ctx) {
    run *r = ctx;
    r->releases++;
    r->released_at = r->progress.done;
    memset(r->data, 0x5a, BYTES);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    run *r = ctx;
    assert_true(done >= r->told && done <= total); /* the same while it copies */
    r->told = done;
}

static void write_it(const struct scratch *s, run *r) {
    char path[100];
    io_queue *queue;
    io_file file;
    uint64_t sums[8] = {0};
    unsigned char *before = any_bytes(BYTES), *after = malloc(BYTES);
    assert_int_equal(posix_memalign((void **)&r->data, PAGE_BYTES, BYTES), 0);
    memcpy(r->data, before, BYTES);
    snprintf(path, sizeof path, "%s/file", s->root);
    assert_int_equal(io_create(path, BYTES, NULL), DCP_OK);
    assert_int_equal(io_open(path, 1, &file, NULL), DCP_OK);
    assert_int_equal(io_queue_create(&queue, NULL), DCP_OK);

    const state_box box = {.data = r->data};
    const box_copy whole = {.run_bytes = BYTES, .runs = 1};
    move_piece p = {.bytes = BYTES, .box = &box, .sums = sums};
    move_piece_set_copy(&p, &whole);
    r->progress = (move_progress){.on_progress = on_progress,
                                  .progress_ctx = r,
                                  .total = BYTES,
                                  .released = on_released,
                                  .is_awaited = is_awaited,
                                  .ctx = r,
                                  .staging_bytes = r->budget};
    const move_file to = {.end = BYTES, .file = &file, .path = path};
    move_device none = {0};
    const move_transfer t = {.direction = MOVE_TO_FILE,
                             .queue = queue,
                             .files = &to,
                             .n_files = 1,
                             .pieces = &p,
                             .n_pieces = 1,
                             .device = &none,
                             .progress = &r->progress,
                             .is_last = true};
    assert_int_equal(move_bulk(&t, NULL), DCP_OK);
    assert_int_equal(r->told, BYTES);

    free((void *)p.copy);
    io_queue_destroy(queue);
    io_close(&file);
    FILE *in = fopen(path, "rb");
    assert_int_equal(fread(after, 1, BYTES, in), BYTES);
    fclose(in);
    assert_memory_equal(after, before, BYTES);
    for (uint64_t b = 0; b < format_index_blocks(BYTES); b++) {
        uint64_t size = format_index_block_bytes(BYTES, b);
        assert_int_equal(core_crc64_finish(sums[b], size),
                         core_crc64(before + b * BLOCK_BYTES, size));
    }
    assert_int_equal(unlink(path), 0);
    free(before);
    free(after);
    free(r->data);
}

static void released_when_the_rest_fits(void **state) {
    run r = {.budget = 3 * BLOCK_BYTES};
    write_it(*state, &r);
    assert_int_equal(r.releases, 1);
    assert_int_equal(r.released_at, 5 * BLOCK_BYTES); /* 2 blocks and 2 pages remain */
}

static void released_when_awaited(void **state) {
    run r = {.budget = BYTES, .awaited_from = 6 * BLOCK_BYTES};
    write_it(*state, &r);
    assert_int_equal(r.releases, 1);
    assert_int_equal(r.released_at, 6 * BLOCK_BYTES);
}

static void never_without_need_or_budget(void **state) {
    run unneeded = {.budget = BYTES, .awaited_from = UINT64_MAX}, none = {.budget = 0};
    write_it(*state, &unneeded);
    assert_int_equal(unneeded.releases, 0); /* the caller of write_direct releases */
    write_it(*state, &none);
    assert_int_equal(none.releases, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_when_the_rest_fits),
        cmocka_unit_test(released_when_awaited),
        cmocka_unit_test(never_without_need_or_budget),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
