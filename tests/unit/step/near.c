/* For a tensor in many pieces, a box is compared only with pieces near it: with all that share
 * elements with it, and with no others if the tensor is cut on one dimension. */
#include "support/core_fixture.h"

#include "core/box.h"
#include "reader/checkpoint.h"

#define MOST 81

typedef struct grid {
    dcp_tensor tensor;
    format_row rows[MOST];
    dcp_box boxes[MOST];
    format_file file;
    size_t n;
    dcp_checkpoint ckpt;
} grid;

static void swap_boxes(format_row *a, format_row *b) {
    const dcp_box *box = a->box;
    a->box = b->box;
    b->box = box;
}

/* A file with one piece per cell of a grid, in any order. */
static void cut(grid *g, const uint64_t *cells) {
    static char paths[MOST][32];
    static char json[] = "{\"format\":1,\"shard\":{\"rank\":0,\"state_id\":\"0123456789abcdef\","
                         "\"world\":1},\"step\":1}";
    uint64_t size[2] = {between(1, 9), between(1, 9)};
    *g = (grid){.tensor = {"/model/w", DCP_U8, 2, {cells[0] * size[0], cells[1] * size[1]}}};
    for (; g->n < cells[0] * cells[1]; g->n++) {
        uint64_t cell[2] = {g->n / cells[1], g->n % cells[1]};
        dcp_box box = {{cell[0] * size[0], cell[1] * size[1]}, {size[0], size[1]}};
        snprintf(paths[g->n], sizeof paths[0], "/model/w@%zu", g->n + 1);
        g->boxes[g->n] = box;
        g->rows[g->n] = (format_row){g->tensor, &g->boxes[g->n], .bytes = size[0] * size[1]};
        g->rows[g->n].tensor.path = paths[g->n];
    }
    for (size_t i = g->n; i > 1; i--) swap_boxes(&g->rows[i - 1], &g->rows[between(0, i - 1)]);
    g->file = (format_file){.path = (char *)"file", .rows = g->rows, .meta = json};
    g->file.ub = (format_userblock){.layout = DCP_LAYOUT_SHARDED, .rows = g->n};
    g->ckpt = (dcp_checkpoint){
        .path = (char *)"folder", .layout = DCP_LAYOUT_SHARDED, .files = &g->file, .n_files = 1};
}

static void grid_free(grid *g) {
    free(g->ckpt.datasets);
    free(g->ckpt.tensors);
    free(g->ckpt.tensor_paths);
    free(g->ckpt.by_address);
    free(g->ckpt.json);
}

static void look(const grid *g, int one_cut) {
    const reader_tensor *t = &g->ckpt.tensors[0];
    for (int round = 0; round < 100; round++) {
        dcp_box box = any_box(2, g->tensor.shape, 1), shared;
        size_t first, end;
        reader_join_near(t, &(reader_datasets){.datasets = t->datasets, .n = t->n_datasets}, &box,
                         &first, &end);
        for (size_t k = 0; k < t->n_datasets; k++) {
            const format_row *row = t->datasets[k].row;
            int is_near = k >= first && k < end,
                shares = core_box_intersect(2, row->box, &box, &shared);
            assert_true(is_near || !shares);
            if (one_cut) assert_int_equal(is_near, shares);
        }
    }
}

static void near_is_what_shares_elements(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        grid g;
        dcp_error err = {0};
        uint64_t cells[2] = {between(1, 9), between(1, 9)};
        if (round % 3 < 2) cells[round % 3] = 1;
        cut(&g, cells);
        assert_int_equal(reader_join_files(&g.ckpt, &err), DCP_OK);
        assert_int_equal(g.ckpt.n_tensors, 1);
        assert_int_equal(g.ckpt.tensors[0].n_datasets, g.n);
        look(&g, round % 3 < 2);
        grid_free(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_is_what_shares_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
