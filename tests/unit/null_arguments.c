/* A NULL in place of a required object or output gives DCP_ERR_ARG and one line, not a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "dcp/dcp.h"

#define REFUSES(call)                                                                              \
    do {                                                                                           \
        dcp_error err = {0};                                                                       \
        assert_int_equal(call, DCP_ERR_ARG);                                                       \
        assert_int_equal(err.status, DCP_ERR_ARG);                                                 \
        assert_true(err.message[0]);                                                               \
    } while (0)

static void communicators(void **state) {
    (void)state;
    dcp_comm_ops ops = DCP_COMM_OPS_INIT;
    dcp_comm *comm;
    REFUSES(dcp_comm_self(NULL, &err));
    REFUSES(dcp_comm_from_ops(NULL, NULL, 0, 1, &comm, &err));
    REFUSES(dcp_comm_from_ops(&ops, NULL, 0, 1, &comm, &err));
    REFUSES(dcp_comm_from_ops(&ops, NULL, 0, 1, NULL, &err));
    assert_int_equal(dcp_comm_rank(NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_size(NULL), DCP_ERR_ARG);
    dcp_comm_destroy(NULL);
}

static void states_and_types(void **state) {
    (void)state;
    dcp_state *s;
    dcp_dtype dtype;
    dcp_tensor tensor = {"/model/w", DCP_F32, 1, {4}};
    dcp_box box = {{0}, {4}}, whole = dcp_box_whole(NULL);
    dcp_seldom seldom = {0};
    dcp_engine engine;
    REFUSES(dcp_state_create(NULL, &err));
    assert_int_equal(dcp_state_create(&s, NULL), DCP_OK);
    REFUSES(dcp_state_add(NULL, &tensor, NULL, &tensor, &err));
    REFUSES(dcp_state_add(s, NULL, NULL, &tensor, &err));
    REFUSES(dcp_state_add(s, &tensor, NULL, NULL, &err));
    REFUSES(dcp_state_add_strided(NULL, &tensor, NULL, &tensor, NULL, &err));
    REFUSES(dcp_state_add_strided(s, NULL, NULL, &tensor, NULL, &err));
    REFUSES(dcp_state_add_strided(s, &tensor, NULL, NULL, NULL, &err));
    REFUSES(dcp_save_copy(NULL, s, NULL, NULL, &err));
    REFUSES(dcp_state_add_many(NULL, 1, &tensor, NULL, NULL, &err));
    REFUSES(dcp_state_add_many(s, 1, NULL, NULL, NULL, &err));
    REFUSES(dcp_state_add_many(s, 1, &tensor, NULL, NULL, &err));
    REFUSES(dcp_state_add_source(s, &tensor, NULL, NULL, NULL, -1, &err));
    assert_int_equal(dcp_state_tensors(NULL), 0);
    assert_int_equal(dcp_state_local_bytes(NULL), 0);
    dcp_state_destroy(s);
    dcp_state_destroy(NULL);
    assert_int_equal(dcp_tensor_bytes(NULL), 0);
    assert_int_equal(dcp_box_elems(NULL, 1), 0);
    assert_int_equal(dcp_box_elems(&whole, 1), 0);
    assert_int_equal(dcp_box_slice(1, NULL, 0, 4, &whole), 0);
    assert_int_equal(dcp_box_slice(1, &box, 0, 4, NULL), 0);
    assert_int_equal(dcp_engine_parse("auto", NULL), DCP_ERR_ARG);
    assert_int_not_equal(dcp_engine_parse(NULL, &engine), DCP_OK);
    assert_int_equal(dcp_stop_seldom(NULL), 0);
    assert_int_equal(dcp_stop_seldom(&seldom), 0);
    assert_int_equal(dcp_dtype_parse(NULL, &dtype), DCP_ERR_ARG);
    assert_int_equal(dcp_dtype_parse("F32", NULL), DCP_ERR_ARG);
}

static void saves(void **state) {
    (void)state;
    char dir[] = "/tmp/dcp-null-XXXXXX", lock[64];
    dcp_comm *comm;
    dcp_store *store;
    dcp_state *s;
    dcp_saving *saving;
    dcp_proof *proof;
    dcp_pin *pin;
    size_t n;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&s, NULL), DCP_OK);
    REFUSES(dcp_store_open(NULL, dir, NULL, &store, &err));
    REFUSES(dcp_store_open(comm, NULL, NULL, &store, &err));
    REFUSES(dcp_store_open(comm, dir, NULL, NULL, &err));
    REFUSES(dcp_store_continue_from(NULL, 0, &err));
    REFUSES(dcp_store_mark_intact(NULL, 0, &err));
    REFUSES(dcp_steps_list(NULL, NULL, &n, &err));
    REFUSES(dcp_step_pin(NULL, &pin, &err));
    REFUSES(dcp_step_pin(dir, NULL, &err));
    dcp_step_unpin(NULL);
    REFUSES(dcp_step_remove(NULL, 0, &err));
    REFUSES(dcp_save(NULL, 0, s, NULL, NULL, NULL, &err));
    assert_int_equal(dcp_store_open(comm, dir, NULL, &store, NULL), DCP_OK);
    REFUSES(dcp_save(store, 0, NULL, NULL, NULL, NULL, &err));
    REFUSES(dcp_save_async(store, 0, NULL, NULL, NULL, &saving, &err));
    REFUSES(dcp_save_async(store, 0, s, NULL, NULL, NULL, &err));
    REFUSES(dcp_save_wait(NULL, NULL, &err));
    assert_int_equal(dcp_save_is_done(NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_tiers_is_done(NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_tiers_is_filled(NULL), DCP_ERR_ARG);
    REFUSES(dcp_prove(NULL, s, NULL, &proof, &err));
    REFUSES(dcp_prove(comm, NULL, NULL, &proof, &err));
    REFUSES(dcp_prove(comm, s, NULL, NULL, &err));
    assert_int_equal(dcp_proof_tensors(NULL), 0);
    assert_null(dcp_proof_tensor(NULL, 0));
    assert_int_equal(dcp_tiers_is_due(NULL, 1), 0);
    assert_int_equal(dcp_tiers_has(NULL, 0, 1), 0);
    dcp_proof_destroy(NULL);
    REFUSES(dcp_rewrite(NULL, store, NULL, NULL, &err));
    dcp_save_fence(NULL);
    dcp_store_close(store);
    dcp_store_close(NULL);
    dcp_state_destroy(s);
    dcp_comm_destroy(comm);
    assert_true(snprintf(lock, sizeof lock, "%s/.lock", dir) > 0);
    unlink(lock);
    rmdir(dir);
}

static void checkpoints(void **state) {
    (void)state;
    dcp_comm *comm;
    dcp_checkpoint *ckpt;
    dcp_glance glance = DCP_GLANCE_INIT;
    dcp_reader *reader;
    uint64_t crc;
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    REFUSES(dcp_checkpoint_open(NULL, "/", &ckpt, &err));
    REFUSES(dcp_checkpoint_open(comm, NULL, &ckpt, &err));
    REFUSES(dcp_checkpoint_open(comm, "/", NULL, &err));
    REFUSES(dcp_load(NULL, NULL, NULL, &err));
    REFUSES(dcp_load_with(NULL, NULL, NULL, NULL, &err));
    REFUSES(dcp_load_async(NULL, NULL, NULL, NULL, &err));
    REFUSES(dcp_load_wait(NULL, NULL, &err));
    assert_int_equal(dcp_load_is_done(NULL), DCP_ERR_ARG);
    dcp_load_cancel(NULL);
    dcp_save_cancel(NULL);
    REFUSES(dcp_checkpoint_read(NULL, "/model/w", NULL, NULL, &err));
    REFUSES(dcp_verify(NULL, NULL, &err));
    dcp_error missing;
    assert_int_equal(dcp_verify("/nowhere", NULL, &missing), DCP_ERR_NOT_FOUND);
    assert_int_equal(missing.rank, -1); /* it is not collective */
    REFUSES(dcp_verify_with(NULL, "/", NULL, &err));
    REFUSES(dcp_verify_with(comm, NULL, NULL, &err));
    REFUSES(dcp_step_glance(NULL, &glance, &err));
    REFUSES(dcp_step_glance("/", NULL, &err));
    REFUSES(dcp_checkpoint_crc(NULL, 0, &crc, &err));
    REFUSES(dcp_reader_create(NULL, &reader, &err));
    REFUSES(dcp_reader_read(NULL, "/model/w", NULL, NULL, &err));
    dcp_reader_destroy(NULL);
    assert_null(dcp_checkpoint_path(NULL));
    assert_null(dcp_checkpoint_json(NULL));
    assert_null(dcp_checkpoint_find(NULL, "/model/w"));
    assert_int_equal(dcp_checkpoint_tensors(NULL), 0);
    assert_int_equal(dcp_checkpoint_step(NULL), 0);
    assert_int_equal(dcp_checkpoint_files(NULL), 0);
    dcp_checkpoint_close(NULL);
    dcp_comm_destroy(comm);
}

static void safetensors(void **state) {
    (void)state;
    dcp_st_reader *reader;
    dcp_st_writer *writer;
    uint64_t bytes;
    char *head;
    int fd;
    REFUSES(dcp_st_open(NULL, &reader, &err));
    REFUSES(dcp_st_open("/", NULL, &err));
    REFUSES(dcp_st_open_incomplete(NULL, &reader, &err));
    REFUSES(dcp_st_open_incomplete("/", NULL, &err));
    REFUSES(dcp_st_read(NULL, "w", 0, 0, NULL, &err));
    REFUSES(dcp_st_open_file(NULL, "config.json", &fd, &bytes, &err));
    REFUSES(dcp_st_open_file("/", NULL, &fd, &bytes, &err));
    REFUSES(dcp_st_open_file("/", "config.json", NULL, &bytes, &err));
    REFUSES(dcp_st_open_file("/", "config.json", &fd, NULL, &err));
    REFUSES(dcp_st_header(NULL, 1, &head, &bytes, &err));
    REFUSES(dcp_st_header(NULL, 0, NULL, &bytes, &err));
    REFUSES(dcp_st_header(NULL, 0, &head, NULL, &err));
    REFUSES(dcp_st_create(NULL, NULL, 0, &writer, &err));
    REFUSES(dcp_st_create("/x", NULL, 1, &writer, &err));
    REFUSES(dcp_st_create("/x", NULL, 0, NULL, &err));
    REFUSES(dcp_st_write(NULL, NULL, 0, &err));
    REFUSES(dcp_st_finish(NULL, &err));
    dcp_st_close(NULL);
    dcp_st_cancel(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators), cmocka_unit_test(states_and_types),
        cmocka_unit_test(saves),         cmocka_unit_test(checkpoints),
        cmocka_unit_test(safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
