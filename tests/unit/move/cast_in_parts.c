/* Elements that are cast as they are placed have the same result in whatever parts they arrive,
 * even if the two parts of an element arrive in reverse order; their stored bytes are summed. */
#include "core/crc64.h"
#include "move/piece.h"
#include "support/core_fixture.h"

enum { N = 97 };

static void place(const move_piece *p, const unsigned char *stored, uint64_t from, uint64_t to) {
    if (from < to)
        assert_int_equal(move_box_put_summed(p, from, from, stored + from, to - from, NULL),
                         DCP_OK);
}

static void any_parts_make_the_same(void **state) {
    (void)state;
    double stored[2 * N];
    float want[2 * N], have[2 * N];
    const uint64_t bytes = sizeof stored;
    for (int i = 0; i < 2 * N; i++) stored[i] = i * 1.7 - 20;
    dcp_convert(DCP_C128, stored, DCP_C64, want, N);
    const format_row row = {.tensor = {"/model/c", DCP_C128, 1, {N}}, .bytes = bytes};
    const state_box box = {.box.count = {N}, .data = have};
    const box_copy all = {.run_bytes = bytes, .runs = 1};
    for (int round = 0; round < 200; round++) {
        uint64_t sum = 0;
        move_cast cast = {.to = DCP_C64};
        move_piece p = {.bytes = bytes, .row = &row, .box = &box, .cast = &cast, .sums = &sum};
        move_piece_set_copy(&p, &all);
        assert_null(move_piece_memory(&p, 0, 16));
        memset(have, 0, sizeof have);
        const unsigned char *data = (unsigned char *)stored;
        const uint64_t one = between(0, bytes), two = between(one, bytes);
        if (any() % 2) { /* one cut */
            place(&p, data, one, bytes);
            place(&p, data, 0, one);
        } else {
            place(&p, data, 0, one);
            place(&p, data, one, two);
            place(&p, data, two, bytes);
        }
        assert_memory_equal(have, want, sizeof want);
        assert_int_equal(sum, core_crc64_raw(0, stored, bytes));
        free((void *)p.copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_parts_make_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
