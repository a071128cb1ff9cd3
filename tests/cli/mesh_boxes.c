/* Meshes: their ranks' boxes hold each element once, except for replicas; tensor parallelism cuts
 * the families' tensors where Megatron does; ranks are numbered as in PyTorch's device meshes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rank_mesh.h"

static rank_mesh make(const char *text) {
    rank_mesh m;
    assert_int_equal(rank_mesh_parse(text, &m), 0);
    return m;
}

static int tp_dim(const char *path, uint32_t ndim) {
    const rank_mesh m = make("tp=2");
    const dcp_tensor t = {path, DCP_F32, ndim, {8, 8, 8, 8}};
    return rank_mesh_tp_cut(&m, &t).dim;
}

/* The only box that the rank holds. */
static dcp_box one_box(const rank_mesh *m, const dcp_tensor *t, int rank) {
    dcp_box boxes[RANK_MESH_QKV] = {0};
    assert_true(rank_mesh_boxes(m, t, rank_mesh_tp_cut(m, t), rank, boxes) <= 1);
    return boxes[0];
}

static void axes_have_any_order_and_each_is_there_once(void **state) {
    rank_mesh m = make("tp=2,fsdp=4");
    (void)state;
    assert_int_equal(m.world, 8);
    assert_int_equal(m.order[0], RANK_MESH_TP);
    assert_int_equal(make("replicate=2,fsdp=3,tp=4").world, 24);
    static const char *const wrong[] = {
        "",        "fsdp", "fsdp=0", "fsdp=2,fsdp=2",      "pp=2", "fsdp=x",
        "fsdp=4 ", ",",    "=4",     "fsdp=99999,tp=99999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(rank_mesh_parse(wrong[i], &m), 2);
}

static void the_families_are_cut_as_megatron_does(void **state) {
    (void)state;
    assert_int_equal(tp_dim("/model/model.layers.0.self_attn.q_proj.weight", 2), 0);
    assert_int_equal(tp_dim("/model/model.layers.0.self_attn.k_proj.bias", 1), 0);
    assert_int_equal(tp_dim("/model/model.layers.0.self_attn.o_proj.weight", 2), 1);
    assert_int_equal(tp_dim("/model/model.layers.0.self_attn.o_proj.bias", 1), -1);
    assert_int_equal(tp_dim("/model/model.layers.0.self_attn.q_norm.weight", 1), -1);
    assert_int_equal(tp_dim("/optimizer/exp_avg_sq/model.layers.0.mlp.down_proj.weight", 2), 1);
    assert_int_equal(tp_dim("/optimizer/exp_avg/model.layers.0.mlp.up_proj.weight", 2), 0);
    assert_int_equal(tp_dim("/model/model.norm.weight", 1), -1);
    assert_int_equal(tp_dim("/model/model.embed_tokens.weight", 2), 0);
    assert_int_equal(tp_dim("/model/lm_head.weight", 2), 0);
    assert_int_equal(tp_dim("/model/transformer.h.0.attn.c_proj.weight", 2), 0);
    assert_int_equal(tp_dim("/model/transformer.h.0.attn.c_proj.bias", 1), -1);
    assert_int_equal(tp_dim("/model/h.0.mlp.c_fc.weight", 2), 1);
    assert_int_equal(tp_dim("/model/h.0.mlp.c_fc.bias", 1), 0);
    assert_int_equal(tp_dim("/model/wpe.weight", 2), -1);
    assert_int_equal(tp_dim("/model/vit.encoder.layer.0.attention.attention.query.weight", 2), 0);
    assert_int_equal(tp_dim("/model/vit.encoder.layer.0.attention.output.dense.weight", 2), 1);
    assert_int_equal(tp_dim("/model/vit.encoder.layer.0.intermediate.dense.bias", 1), 0);
    assert_int_equal(tp_dim("/model/vit.encoder.layer.0.output.dense.bias", 1), -1);
    assert_int_equal(tp_dim("/files/lm_head.weight", 1), -1);
}

static void the_callers_rules_go_first(void **state) {
    const dcp_tensor q = {"/model/a.q_proj.weight", DCP_F32, 2, {8, 8}};
    const dcp_tensor mine = {"/optimizer/exp_avg/experts.w1", DCP_F32, 3, {4, 8, 8}};
    rank_mesh m = make("tp=2");
    (void)state;
    assert_int_equal(rank_mesh_set_rules(&m, "*q_proj*=none,experts.*=2,*=7"), 0);
    assert_int_equal(rank_mesh_tp_cut(&m, &q).dim, -1);
    assert_int_equal(rank_mesh_tp_cut(&m, &mine).dim, 2);
    rank_mesh_free(&m);
    static const char *const wrong[] = {"", "x", "x=", "=1", "x=8", "x=-1", "x=10", "x=1,y"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(rank_mesh_set_rules(&m, wrong[i]), 2);
}

static void queries_keys_and_values_in_one_are_cut_each(void **state) {
    (void)state;
    const dcp_tensor weight = {"/model/h.0.attn.c_attn.weight", DCP_F32, 2, {8, 24}};
    const dcp_tensor bias = {"/optimizer/exp_avg/h.0.attn.c_attn.bias", DCP_F32, 1, {24}};
    const rank_mesh m = make("fsdp=2,tp=2");
    dcp_box boxes[RANK_MESH_QKV];
    assert_int_equal(rank_mesh_boxes(&m, &weight, rank_mesh_tp_cut(&m, &weight), 3, boxes), 3);
    for (uint64_t p = 0; p < 3; p++) { /* rows 4 to 7, and the second half of each part */
        const dcp_box want = {{4, 8 * p + 4}, {4, 4}};
        assert_memory_equal(&boxes[p], &want, sizeof want);
    }
    /* tp 1 has 4 to 7, 12 to 15, 20 to 23; fsdp gives the first half of these to rank 1 */
    assert_int_equal(rank_mesh_boxes(&m, &bias, rank_mesh_tp_cut(&m, &bias), 1, boxes), 2);
    const dcp_box first[] = {{{4}, {4}}, {{12}, {2}}}, second[] = {{{14}, {2}}, {{20}, {4}}};
    assert_memory_equal(boxes, first, sizeof first);
    assert_int_equal(rank_mesh_boxes(&m, &bias, rank_mesh_tp_cut(&m, &bias), 3, boxes), 2);
    assert_memory_equal(boxes, second, sizeof second);
    const rank_mesh flat = make("fsdp=4");
    assert_int_equal(rank_mesh_boxes(&flat, &weight, rank_mesh_tp_cut(&flat, &weight), 1, boxes),
                     1);
}

static void assert_box(dcp_box box, uint64_t row, uint64_t rows, uint64_t column,
                       uint64_t columns) {
    assert_int_equal(box.start[0], row);
    assert_int_equal(box.count[0], rows);
    assert_int_equal(box.start[1], column);
    assert_int_equal(box.count[1], columns);
}

static void the_first_axis_is_the_slowest(void **state) {
    const dcp_tensor q = {"/model/a.q_proj.weight", DCP_F32, 2, {8, 6}};
    const dcp_tensor o = {"/model/a.o_proj.weight", DCP_F32, 2, {8, 6}};
    const rank_mesh m = make("fsdp=2,tp=2"), turned = make("tp=2,fsdp=2");
    (void)state;
    assert_box(one_box(&m, &q, 1), 4, 2, 0, 6); /* tp 1 has rows 4 to 7, fsdp 0 half of them */
    assert_box(one_box(&m, &q, 2), 2, 2, 0, 6);
    assert_box(one_box(&m, &o, 1), 0, 4, 3, 3);
    assert_box(one_box(&turned, &o, 1), 4, 4, 0, 3);
}

/* How many of the mesh's ranks hold the element. */
static int holders(const rank_mesh *m, const dcp_tensor *t, uint64_t row, uint64_t column) {
    int n = 0;
    for (int r = 0; r < m->world; r++) {
        dcp_box boxes[RANK_MESH_QKV];
        int own = rank_mesh_boxes(m, t, rank_mesh_tp_cut(m, t), r, boxes);
        for (const dcp_box *b = boxes; b < boxes + own; b++)
            n += row - b->start[0] < b->count[0] && column - b->start[1] < b->count[1];
    }
    return n;
}

static void every_element_has_its_holders(void **state) {
    static const struct {
        const char *mesh;
        int of_cut, of_whole;
    } cases[] = {{"fsdp=7", 1, 1}, {"fsdp=3,tp=5", 1, 5}, {"tp=4,replicate=2,fsdp=3", 2, 8}};
    static const char *const paths[] = {"/model/q_proj.weight", "/model/o_proj.weight",
                                        "/model/other", "/model/h.0.attn.c_attn.weight"};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t p = 0; p < 4; p++) {
            const rank_mesh m = make(cases[c].mesh);
            const dcp_tensor t = {paths[p], DCP_F32, 2, {11, 33}};
            for (uint64_t i = 0; i < 11 * 33; i++)
                assert_int_equal(holders(&m, &t, i / 33, i % 33),
                                 p == 2 ? cases[c].of_whole : cases[c].of_cut);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_have_any_order_and_each_is_there_once),
        cmocka_unit_test(the_families_are_cut_as_megatron_does),
        cmocka_unit_test(the_callers_rules_go_first),
        cmocka_unit_test(queries_keys_and_values_in_one_are_cut_each),
        cmocka_unit_test(the_first_axis_is_the_slowest),
        cmocka_unit_test(every_element_has_its_holders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
