/* dcp_box_chunk compared with torch.chunk's definition: chunks of ceil(n / world) rows until there
 * are no more, then empty ones. */
#include "support/core_fixture.h"

static void check_world(const dcp_tensor *tensor, int world) {
    uint64_t rows = tensor->shape[0], size = (rows + (uint64_t)world - 1) / (uint64_t)world, at = 0;
    for (int rank = 0; rank < world; rank++) {
        dcp_box box = dcp_box_chunk(tensor, rank, world);
        uint64_t expected = rows - at < size ? rows - at : size;
        assert_int_equal(box.start[0], at);
        assert_int_equal(box.count[0], expected);
        for (uint32_t d = 1; d < tensor->ndim; d++) {
            assert_int_equal(box.start[d], 0);
            assert_int_equal(box.count[d], tensor->shape[d]);
        }
        at += expected;
    }
    assert_int_equal(at, rows);
}

static void chunks_are_torchs(void **state) {
    (void)state;
    for (uint64_t rows = 0; rows <= 130; rows++)
        for (int world = 1; world <= 40; world++) {
            dcp_tensor tensor = {"/model/w", DCP_F32, 3, {rows, 5, 2}};
            check_world(&tensor, world);
        }
}

static void the_largest_sizes_do_not_overflow(void **state) {
    (void)state;
    static const uint64_t sizes[] = {(1ULL << 62) - 1, 1ULL << 61, (1ULL << 61) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int world = 1; world <= 40; world++) {
            dcp_tensor tensor = {"/model/w", DCP_U8, 1, {sizes[i]}};
            check_world(&tensor, world);
        }
}

static void a_scalar_is_on_rank_0(void **state) {
    (void)state;
    dcp_tensor scalar = {"/model/s", DCP_F32, 0, {0}};
    for (int world = 1; world <= 40; world++)
        for (int rank = 0; rank < world; rank++) {
            dcp_box box = dcp_box_chunk(&scalar, rank, world);
            assert_int_equal(box.start[0], 0);
            assert_int_equal(box.count[0], rank == 0);
            assert_int_equal(dcp_box_elems(&box, 0), rank == 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_torchs),
        cmocka_unit_test(the_largest_sizes_do_not_overflow),
        cmocka_unit_test(a_scalar_is_on_rank_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
