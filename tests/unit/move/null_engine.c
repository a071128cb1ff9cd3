/* A new engine is a row of the table: one that moves nothing saves and loads by its name. What it
 * does not write is read as zeros, for which its checksums are correct; what it does not read is
 * detected. */
#include "io/file.h"
#include "move/engine.h"
#include "move/transfer.h"
#include "support/store_fixture.h"

enum { NULL_ENGINE = 9, ELEMS = 3000 };

static int open_to_write(const char *path, io_file *out, dcp_error *err) {
    return io_open(path, 1, out, err);
}

static int move_nothing(move_transfer *t, dcp_error *err) {
    return move_transfer_finish(t, DCP_OK, err);
}

static const move_engine null_engine = {.engine = (dcp_engine)NULL_ENGINE,
                                        .name = "null",
                                        .open = open_to_write,
                                        .to_file = move_nothing,
                                        .from_files = move_nothing};

/* Replaces the library's table (move/engines.c). */
extern const move_engine move_engine_direct, move_engine_mpio;
const move_engine *const move_engines[] = {&move_engine_direct, &move_engine_mpio, &null_engine,
                                           NULL};

static dcp_state *make_state(float *data) {
    const dcp_tensor t = {"/model/w", DCP_F32, 1, {ELEMS}};
    const dcp_box all = dcp_box_whole(&t);
    dcp_state *state = NULL;
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &t, &all, data, NULL), DCP_OK);
    return state;
}

static void save(struct scratch *s, uint64_t step, const dcp_state *state, const char *name) {
    dcp_report report = DCP_REPORT_INIT;
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    dcp_store *store = open_store(s, 0, 1);
    assert_int_equal(dcp_engine_parse(name, &options.engine), DCP_OK);
    assert_int_equal(dcp_save(store, step, state, NULL, &options, &report, NULL), DCP_OK);
    assert_string_equal(dcp_engine_name(report.engine), name);
    dcp_store_close(store);
}

static int load(struct scratch *s, const dcp_state *state, const char *name, dcp_error *err) {
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options options = DCP_LOAD_OPTIONS_INIT;
    assert_int_equal(dcp_engine_parse(name, &options.engine), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(s->comm, s->dir, &ckpt, NULL), DCP_OK);
    int status = dcp_load_with(ckpt, state, &options, NULL, err);
    dcp_checkpoint_close(ckpt);
    return status;
}

static void an_engine_is_a_row(void **state) {
    struct scratch *s = *state;
    static float data[ELEMS];
    dcp_error err = {0};
    dcp_state *floats = make_state(data);
    for (int i = 0; i < ELEMS; i++) data[i] = 1;
    save(s, 1, floats, "null");
    assert_int_equal(load(s, floats, "direct", &err), DCP_OK);
    for (int i = 0; i < ELEMS; i++) assert_true(data[i] == 0);
    for (int i = 0; i < ELEMS; i++) data[i] = 1;
    save(s, 2, floats, "direct");
    assert_int_equal(load(s, floats, "null", &err), DCP_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "/model/w"));
    assert_int_equal(load(s, floats, "direct", &err), DCP_OK);
    dcp_state_destroy(floats);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(an_engine_is_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
