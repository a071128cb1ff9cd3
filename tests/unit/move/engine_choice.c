/* The engine that a save and a load use: the requested one, or the one that suits the file system.
 * mpio is refused, before anything is written, if MPI is not running. */
#include <linux/magic.h>

#include "move/engine.h"
#include "support/store_fixture.h"

static int save(struct scratch *s, dcp_engine engine, dcp_report *report, dcp_error *err) {
    dcp_state *state = NULL;
    dcp_store *store = open_store(s, 0, 1);
    dcp_save_options options = {.size = sizeof options, .engine = engine};
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    int status = dcp_save(store, 1, state, NULL, &options, report, err);
    dcp_state_destroy(state);
    dcp_store_close(store);
    return status;
}

static int load(struct scratch *s, dcp_engine engine, dcp_report *report, dcp_error *err) {
    dcp_state *state = NULL;
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options options = {.size = sizeof options, .engine = engine};
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(s->comm, s->dir, &ckpt, NULL), DCP_OK);
    int status = dcp_load_with(ckpt, state, &options, report, err);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    return status;
}

static void the_file_system_chooses(void **state) {
    (void)state;
    static const uint64_t direct[] = {
        EXT4_SUPER_MAGIC,      XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,       TMPFS_MAGIC,
        OVERLAYFS_SUPER_MAGIC, NFS_SUPER_MAGIC, 0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */,
        0x00c36400 /* Ceph */, 0x12345678 /* unknown */};
    for (size_t i = 0; i < sizeof direct / sizeof *direct; i++)
        assert_int_equal(move_engine_for_type(direct[i])->engine, DCP_ENGINE_DIRECT);
    assert_int_equal(move_engine_for_type(0x20030528)->engine, DCP_ENGINE_MPIO); /* PVFS2 */
    assert_int_equal(move_engine_choose(DCP_ENGINE_AUTO, "/nowhere")->engine, DCP_ENGINE_DIRECT);
}

static void the_one_used_is_told(void **state) {
    struct scratch *s = *state;
    dcp_report report = DCP_REPORT_INIT;
    char *about = NULL, step[120];
    assert_int_equal(save(s, DCP_ENGINE_AUTO, &report, NULL), DCP_OK);
    assert_int_equal(report.engine, DCP_ENGINE_DIRECT);
    snprintf(step, sizeof step, "%s/step-00000001", s->dir);
    assert_int_equal(dcp_about_read(step, &about, NULL), DCP_OK);
    assert_non_null(strstr(about, "\"engine\":\"direct\""));
    free(about);
    report.engine = DCP_ENGINE_AUTO;
    assert_int_equal(load(s, DCP_ENGINE_AUTO, &report, NULL), DCP_OK);
    assert_int_equal(report.engine, DCP_ENGINE_DIRECT);
    assert_string_equal(dcp_engine_name(DCP_ENGINE_MPIO), "mpio");
    assert_null(dcp_engine_name((dcp_engine)4));
    assert_int_equal(dcp_engine_parse("mpio", &report.engine), DCP_OK);
    assert_int_equal(report.engine, DCP_ENGINE_MPIO);
    assert_int_equal(dcp_engine_parse("mpi", &report.engine), DCP_ERR_NOT_FOUND);
    assert_int_equal(dcp_engine_parse(NULL, &report.engine), DCP_ERR_NOT_FOUND);
}

static void without_mpi_there_is_no_mpio(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    assert_int_equal(save(s, DCP_ENGINE_MPIO, NULL, &err), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "MPI_Init"));
    assert_int_equal(save(s, (dcp_engine)4, NULL, &err), DCP_ERR_ARG);
    assert_int_equal(save(s, DCP_ENGINE_DIRECT, NULL, &err), DCP_OK);
    assert_int_equal(load(s, DCP_ENGINE_MPIO, NULL, &err), DCP_ERR_UNSUPPORTED);
    assert_int_equal(load(s, (dcp_engine)4, NULL, &err), DCP_ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_system_chooses),
        scratch_test(the_one_used_is_told),
        scratch_test(without_mpi_there_is_no_mpio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
