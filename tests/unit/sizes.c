/* Structs that begin with their size (dcp/size.h): every public function refuses a size of 0, one
 * smaller than a size_t and one larger than the library's, with DCP_ERR_ARG and the macro's name.
 * It accepts a smaller struct, and reads and writes nothing after it. */
#include <limits.h>

#include "support/store_fixture.h"

#define BEHIND 0xee /* as options and as a pointer: refused, or a crash */

static struct scratch *at;
static dcp_store *store;
static dcp_state *content;
static dcp_checkpoint *ckpt;
static dcp_tiers *tiers;
static dcp_tier one_tier = {.size = sizeof one_tier, .every = 1};
static char step_path[PATH_MAX];
static float weight[4] = {1, 2, 3, 4};
static uint64_t step = 1; /* the newest */

/* One call with the struct under test; everything else that it needs is correct. */
typedef int (*call_fn)(void *given, dcp_error *err);

static int call_save(void *given, dcp_error *err) {
    return dcp_save(store, ++step, content, NULL, given, NULL, err);
}
static int call_save_report(void *given, dcp_error *err) {
    return dcp_save(store, ++step, content, NULL, NULL, given, err);
}
static int call_save_async(void *given, dcp_error *err) {
    dcp_saving *saving = NULL;
    int status = dcp_save_async(store, ++step, content, NULL, given, &saving, err);
    return status ? status : dcp_save_wait(saving, NULL, err);
}
static int call_save_wait(void *given, dcp_error *err) {
    dcp_saving *saving = NULL;
    int status = dcp_save_async(store, ++step, content, NULL, NULL, &saving, err);
    return status ? status : dcp_save_wait(saving, given, err);
}
static int call_save_prepare(void *given, dcp_error *err) {
    return dcp_save_prepare(store, content, given, err);
}
static int call_load(void *given, dcp_error *err) {
    return dcp_load_with(ckpt, content, given, NULL, err);
}
static int call_load_report(void *given, dcp_error *err) {
    return dcp_load(ckpt, content, given, err);
}
static int call_load_async(void *given, dcp_error *err) {
    dcp_loading *loading = NULL;
    int status = dcp_load_async(ckpt, content, given, &loading, err);
    return status ? status : dcp_load_wait(loading, NULL, err);
}
static int call_load_wait(void *given, dcp_error *err) {
    dcp_loading *loading = NULL;
    int status = dcp_load_async(ckpt, content, NULL, &loading, err);
    return status ? status : dcp_load_wait(loading, given, err);
}
static int call_verify(void *given, dcp_error *err) { return dcp_verify(step_path, given, err); }
static int call_verify_with(void *given, dcp_error *err) {
    return dcp_verify_with(at->comm, step_path, given, err);
}

static int rewrite(dcp_rewrite_options *options, dcp_report *report, dcp_error *err) {
    char dir[PATH_MAX];
    dcp_store *to = NULL;
    const dcp_store_options replace = {.size = sizeof replace, .replace = 1};
    snprintf(dir, sizeof dir, "%s/rewritten", at->root);
    assert_int_equal(dcp_store_open(at->comm, dir, &replace, &to, NULL), DCP_OK);
    int status = dcp_rewrite(ckpt, to, options, report, err);
    dcp_store_close(to);
    return status;
}
static int call_rewrite(void *given, dcp_error *err) { return rewrite(given, NULL, err); }
static int call_rewrite_report(void *given, dcp_error *err) { return rewrite(NULL, given, err); }

static int call_store_open(void *given, dcp_error *err) {
    char dir[PATH_MAX];
    dcp_store *other = NULL;
    snprintf(dir, sizeof dir, "%s/other", at->root);
    int status = dcp_store_open(at->comm, dir, given, &other, err);
    dcp_store_close(other);
    return status;
}
static int call_prove(void *given, dcp_error *err) {
    dcp_proof *proof = NULL;
    int status = dcp_prove(at->comm, content, given, &proof, err);
    dcp_proof_destroy(proof);
    return status;
}

static int open_tiers(const dcp_tier *tier, dcp_tiers_options *options, dcp_error *err) {
    dcp_tiers *other = NULL;
    int status = dcp_tiers_open(at->comm, tier, 1, options, &other, err);
    dcp_tiers_close(other);
    return status;
}
static int call_tiers_open(void *given, dcp_error *err) {
    char dir[PATH_MAX];
    dcp_tier tier = {.size = sizeof tier, .path = dir};
    snprintf(dir, sizeof dir, "%s/other", at->root);
    return open_tiers(&tier, given, err);
}
static int call_tiers_save(void *given, dcp_error *err) {
    return dcp_tiers_save(tiers, ++step, content, NULL, given, 0, NULL, err);
}
static int call_tiers_save_report(void *given, dcp_error *err) {
    return dcp_tiers_save(tiers, ++step, content, NULL, NULL, 0, given, err);
}
static int call_tiers_save_async(void *given, dcp_error *err) {
    int status = dcp_tiers_save_async(tiers, ++step, content, NULL, given, err);
    return status ? status : dcp_tiers_wait(tiers, NULL, err);
}
static int call_tiers_wait(void *given, dcp_error *err) {
    int status = dcp_tiers_save_async(tiers, ++step, content, NULL, NULL, err);
    return status ? status : dcp_tiers_wait(tiers, given, err);
}
static int call_tiers_prepare(void *given, dcp_error *err) {
    return dcp_tiers_prepare(tiers, content, given, err);
}
static int call_tier_open(void *given, dcp_error *err) { return open_tiers(given, NULL, err); }
static int call_tier_steps(void *given, dcp_error *err) {
    dcp_tiers_step *steps = NULL;
    size_t n;
    int status = dcp_tiers_steps(at->comm, given, 1, &steps, &n, err);
    free(steps);
    return status;
}
static int call_tier_open_step(void *given, dcp_error *err) {
    const dcp_tiers_step which = {1, 0};
    dcp_checkpoint *opened = NULL;
    int status = dcp_tiers_open_step(at->comm, given, &which, &opened, err);
    dcp_checkpoint_close(opened);
    return status;
}
static int call_comm(void *given, dcp_error *err) {
    dcp_comm *comm = NULL;
    int status = dcp_comm_from_ops(given, NULL, 0, 1, &comm, err);
    dcp_comm_destroy(comm);
    return status;
}
static int call_device(void *given, dcp_error *err) {
    const dcp_tensor tensor = {"/model/other", DCP_F32, 1, {4}};
    return dcp_state_add_device(content, &tensor, NULL, given, weight, err);
}
static int call_glance(void *given, dcp_error *err) {
    return dcp_step_glance(step_path, given, err);
}
static int call_piece(void *given, dcp_error *err) {
    (void)err;
    return dcp_checkpoint_piece(ckpt, 0, 0, given);
}

/* least: the part of the struct that a successful call needs; 0: it lacks functions. */
static const struct {
    const char *init;
    size_t size, least;
    call_fn call;
} calls[] = {
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_save},
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_save_async},
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_save_prepare},
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_tiers_save},
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_tiers_save_async},
    {"DCP_SAVE_OPTIONS_INIT", sizeof(dcp_save_options), sizeof(size_t), call_tiers_prepare},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_save_report},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_save_wait},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_load_report},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_rewrite_report},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_tiers_save_report},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_tiers_wait},
    {"DCP_LOAD_OPTIONS_INIT", sizeof(dcp_load_options), sizeof(size_t), call_load},
    {"DCP_LOAD_OPTIONS_INIT", sizeof(dcp_load_options), sizeof(size_t), call_load_async},
    {"DCP_REPORT_INIT", sizeof(dcp_report), sizeof(size_t), call_load_wait},
    {"DCP_VERIFY_OPTIONS_INIT", sizeof(dcp_verify_options), sizeof(size_t), call_verify},
    {"DCP_VERIFY_OPTIONS_INIT", sizeof(dcp_verify_options), sizeof(size_t), call_verify_with},
    {"DCP_REWRITE_OPTIONS_INIT", sizeof(dcp_rewrite_options), sizeof(size_t), call_rewrite},
    {"DCP_STORE_OPTIONS_INIT", sizeof(dcp_store_options), sizeof(size_t), call_store_open},
    {"DCP_PROVE_OPTIONS_INIT", sizeof(dcp_prove_options), sizeof(size_t), call_prove},
    {"DCP_TIERS_OPTIONS_INIT", sizeof(dcp_tiers_options), sizeof(size_t), call_tiers_open},
    {"DCP_TIER_INIT", sizeof(dcp_tier), 0, call_tier_open},
    {"DCP_TIER_INIT", sizeof(dcp_tier), 0, call_tier_steps},
    {"DCP_TIER_INIT", sizeof(dcp_tier), 0, call_tier_open_step},
    {"DCP_COMM_OPS_INIT", sizeof(dcp_comm_ops), 0, call_comm},
    {"DCP_DEVICE_INIT", sizeof(dcp_device), 0, call_device},
    {"DCP_GLANCE_INIT", sizeof(dcp_glance), sizeof(size_t), call_glance},
    {"DCP_PIECE_INIT", sizeof(dcp_piece), sizeof(size_t), call_piece},
};
#define CALLS (sizeof calls / sizeof *calls)

/* A struct of that size followed by other bytes, as from a caller with older headers. */
static unsigned char *make_given(size_t size, size_t room) {
    unsigned char *given = malloc(room);
    assert_non_null(given);
    memset(given, BEHIND, room);
    memset(given, 0, size < room ? size : room);
    memcpy(given, &size, sizeof size);
    return given;
}

static void wrong_sizes_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        const size_t own = calls[i].size;
        const size_t wrong[] = {0, sizeof(size_t) - 1, own + 1, own + 64, SIZE_MAX};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            dcp_error err = {0};
            unsigned char *given = make_given(wrong[k], own + 64);
            assert_int_equal(calls[i].call(given, &err), DCP_ERR_ARG);
            if (calls[i].call != call_piece && !strstr(err.message, calls[i].init))
                fail_msg("size %zu of %s: %s", wrong[k], calls[i].init, err.message);
            free(given);
        }
    }
}

static void short_ones_are_taken(void **state) {
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        dcp_error err = {0};
        const size_t own = calls[i].size, size = sizeof(size_t);
        unsigned char *given = make_given(size, own);
        int status = calls[i].call(given, &err);
        if (status != (calls[i].least ? DCP_OK : DCP_ERR_ARG))
            fail_msg("short %s: %d: %s", calls[i].init, status, err.message);
        assert_null(strstr(err.message, calls[i].init)); /* another member is missing */
        for (size_t k = size; k < own; k++) assert_int_equal(given[k], BEHIND);
        assert_memory_equal(given, &size, sizeof size);
        free(given);
    }
}

static void null_is_taken(void **state) {
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        const int is_output = calls[i].call == call_glance || calls[i].call == call_piece;
        const int is_needed = is_output || !calls[i].least;
        dcp_error err = {0};
        assert_int_equal(calls[i].call(NULL, &err), is_needed ? DCP_ERR_ARG : DCP_OK);
    }
}

/* A report and a glance get as many members as there is room for. */
static void outputs_end_with_the_callers_struct(void **state) {
    (void)state;
    const size_t sizes[] = {offsetof(dcp_report, unchanged), offsetof(dcp_glance, tensors)};
    const size_t rooms[] = {sizeof(dcp_report), sizeof(dcp_glance)};
    static const call_fn fill[] = {call_save_report, call_glance};
    for (size_t i = 0; i < 2; i++) {
        unsigned char *given = make_given(sizes[i], rooms[i]);
        assert_int_equal(fill[i](given, NULL), DCP_OK);
        if (i == 0) assert_int_equal(((dcp_report *)given)->bytes, sizeof weight);
        if (i == 1) assert_int_equal(((dcp_glance *)given)->files, 1);
        for (size_t k = sizes[i]; k < rooms[i]; k++) assert_int_equal(given[k], BEHIND);
        free(given);
    }
}

/* Shorter stores follow each other at the first one's size; all have the same size. */
static void a_list_has_one_size(void **state) {
    (void)state;
    dcp_error err = {0};
    dcp_tiers *opened = NULL;
    enum { SHORT = offsetof(dcp_tier, domain) };
    char names[2][PATH_MAX];
    _Alignas(dcp_tier) unsigned char list[2 * SHORT];
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], PATH_MAX, "%s/short-%d", at->root, i);
        const dcp_tier tier = {.size = SHORT, .path = names[i], .every = 1};
        memcpy(list + i * SHORT, &tier, SHORT);
    }
    const dcp_tier *short_list = (const void *)list;
    assert_int_equal(dcp_tiers_open(at->comm, short_list, 2, NULL, &opened, &err), DCP_OK);
    assert_int_equal(dcp_tiers_save(opened, 1, content, NULL, NULL, 1, NULL, &err), DCP_OK);
    assert_true(dcp_tiers_has(opened, 0, 1) && dcp_tiers_has(opened, 1, 1));
    dcp_tiers_close(opened);
    const size_t other = SHORT - 8;
    memcpy(list + SHORT, &other, sizeof other);
    assert_int_equal(dcp_tiers_open(at->comm, short_list, 2, NULL, &opened, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "store 1 of the list has the member size = "));
}

static int make_all(void **state) {
    static char dir[PATH_MAX];
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {4}};
    if (scratch_make(state)) return -1;
    at = *state;
    store = open_store(at, 0, 0);
    snprintf(dir, sizeof dir, "%s/tier", at->root);
    one_tier.path = dir;
    snprintf(step_path, sizeof step_path, "%s/step-00000001", at->dir);
    return dcp_state_create(&content, NULL) ||
           dcp_state_add(content, &tensor, NULL, weight, NULL) ||
           dcp_save(store, 1, content, NULL, NULL, NULL, NULL) ||
           dcp_checkpoint_open(at->comm, step_path, &ckpt, NULL) ||
           dcp_tiers_open(at->comm, &one_tier, 1, NULL, &tiers, NULL);
}

static int free_all(void **state) {
    dcp_tiers_close(tiers);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(content);
    dcp_store_close(store);
    return scratch_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(short_ones_are_taken),
        cmocka_unit_test(null_is_taken),
        cmocka_unit_test(outputs_end_with_the_callers_struct),
        cmocka_unit_test(a_list_has_one_size),
    };
    return cmocka_run_group_tests(tests, make_all, free_all);
}
