/* Checksums of pieces, added in any order and cut anywhere, are those of the dataset's blocks and,
 * if a dataset is a box of a tensor, of the tensor's blocks. */
#include "core/crc64.h"
#include "move/piece.h"
#include "support/core_fixture.h"

#define MOST_BLOCKS 4

static void sum_in_parts(const move_piece *p, const unsigned char *data, uint64_t bytes) {
    uint64_t middle = bytes ? between(0, bytes) : 0, part;
    for (uint64_t at = middle; at < bytes; at += part) {
        part = between(1, bytes - at);
        move_piece_sum(p, at, data + at, part);
    }
    for (uint64_t at = 0; at < middle; at += part) {
        part = between(1, middle - at);
        move_piece_sum(p, at, data + at, part);
    }
}

static void check_blocks(const uint64_t *sums, const unsigned char *data, uint64_t bytes) {
    uint64_t crcs[MOST_BLOCKS];
    for (uint64_t b = 0; b < format_index_blocks(bytes); b++) {
        uint64_t size = format_index_block_bytes(bytes, b);
        crcs[b] = core_crc64(data + b * BLOCK_BYTES, size);
        assert_int_equal(core_crc64_finish(sums[b], size), crcs[b]);
    }
    assert_int_equal(format_index_join_blocks(crcs, bytes), core_crc64(data, bytes));
}

static void a_dataset_in_parts(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0,
                                     1,
                                     BLOCK_BYTES - 1,
                                     BLOCK_BYTES,
                                     BLOCK_BYTES + 1,
                                     2 * BLOCK_BYTES,
                                     3 * BLOCK_BYTES + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *data = any_bytes(sizes[i]);
        uint64_t sums[MOST_BLOCKS] = {0};
        move_piece p = {.bytes = sizes[i], .sums = sums};
        sum_in_parts(&p, data, sizes[i]);
        check_blocks(sums, data, sizes[i]);
        free(data);
    }
}

/* The box's bytes of `tensor`, dense. */
static unsigned char *cut(const unsigned char *tensor, const box_copy *copy) {
    unsigned char *data = malloc(copy->runs * copy->run_bytes + 1);
    for (uint64_t run = 0, a, b; run < copy->runs; run++) {
        core_box_copy_run(copy, run, &a, &b);
        memcpy(data + b, tensor + a, copy->run_bytes);
    }
    return data;
}

static void boxes_of_a_tensor(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        uint64_t shape[] = {between(3, 60), between(3, 60), round % 8 ? between(1, 30) : 3001};
        uint64_t bytes = shape[0] * shape[1] * shape[2], origin[3] = {0};
        uint64_t whole[MOST_BLOCKS] = {0}, own[MOST_BLOCKS];
        unsigned char *tensor = any_bytes(bytes);
        uint64_t rows = between(0, shape[0]), columns = between(0, shape[1]);
        for (int part = 0; part < 4; part++) { /* four corners */
            uint64_t start[] = {part / 2 ? rows : 0, part % 2 ? columns : 0, 0};
            uint64_t count[] = {part / 2 ? shape[0] - rows : rows,
                                part % 2 ? shape[1] - columns : columns, shape[2]};
            move_global global = {.bytes = bytes, .sums = whole};
            const box_copy *copy = &global.copy;
            core_box_copy_init(&global.copy, 3, 1, count, shape, start, count, origin);
            memset(own, 0, sizeof own);
            uint64_t size = copy->runs * copy->run_bytes;
            move_piece p = {.bytes = size, .sums = own, .global = &global};
            unsigned char *data = cut(tensor, copy);
            sum_in_parts(&p, data, size);
            check_blocks(own, data, size);
            free(data);
        }
        check_blocks(whole, tensor, bytes);
        free(tensor);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dataset_in_parts),
        cmocka_unit_test(boxes_of_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
