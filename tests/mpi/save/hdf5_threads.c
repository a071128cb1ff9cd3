/* A program that uses HDF5 itself, while saves are in flight and stores are being filled: the
 * library calls HDF5, which is not thread-safe, only on the thread that called the library. The
 * linker wraps functions of HDF5 that lay out a file, so that this file counts their calls; with
 * the first of them, H5Eset_auto2, every use of HDF5 in the library begins. */
#include <hdf5.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "support/tiers.h"

static long program_thread;
static atomic_int calls, calls_elsewhere;

static void note_call(void) {
    atomic_fetch_add(syscall(SYS_gettid) == program_thread ? &calls : &calls_elsewhere, 1);
}

#define WATCHED(type, name, parameters, arguments)                                                 \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        note_call();                                                                               \
        return __real_##name arguments;                                                            \
    }

WATCHED(herr_t, H5Eset_auto2, (hid_t stack, H5E_auto2_t f, void *data), (stack, f, data))
WATCHED(hid_t, H5Pcreate, (hid_t class), (class))
WATCHED(herr_t, H5Fclose, (hid_t file), (file))
WATCHED(hid_t, H5Dcreate2,
        (hid_t at, const char *name, hid_t type, hid_t space, hid_t lcpl, hid_t dcpl, hid_t dapl),
        (at, name, type, space, lcpl, dcpl, dapl))

/* Makes a file in memory with some datasets. */
static void use_hdf5(void) {
    hsize_t size = 16;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(H5Pset_fapl_core(access, 1 << 16, 0) >= 0);
    hid_t file = H5Fcreate("in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t space = H5Screate_simple(1, &size, NULL);
    for (char name[] = "a"; *name <= 'z'; ++*name) {
        hid_t dataset =
            H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(dataset >= 0 && H5Dclose(dataset) >= 0);
    }
    CHECK(H5Sclose(space) >= 0 && H5Fclose(file) >= 0 && H5Pclose(access) >= 0);
}

static herr_t own_printing(hid_t stack, void *data) {
    (void)stack;
    ++*(int *)data;
    return 0;
}

/* The program's own handling of HDF5's errors is unchanged. */
static void check_printing(int *messages) {
    H5E_auto2_t f;
    void *data;
    CHECK(H5Eget_auto2(H5E_DEFAULT, &f, &data) >= 0 && f == own_printing && data == messages);
}

/* The first save of each layout lays files out; the second one uses the plan. */
static void save_beside(const scratch *s, const given *g, int *messages) {
    dcp_store *store = scratch_store(s, s->comm, "beside");
    for (uint64_t step = 1; step <= 4; step++) {
        held h;
        dcp_saving *saving;
        const dcp_save_options options = {
            .size = sizeof options, .layout = step > 2 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL};
        held_make(&h, g, ROWS, s->rank, s->size, 1);
        SUCCEEDS(dcp_save_async(store, step, h.state, GIVEN_JSON, &options, &saving, err));
        do {
            check_printing(messages);
            use_hdf5();
        } while (!dcp_save_is_done(saving));
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
        held_free(&h);
    }
    dcp_store_close(store);
}

/* Every second step fills the slower stores. */
static void fill_beside(const scratch *s, const given *g, int *messages) {
    static tiers_under_test t;
    tiers_make(&t, s, NULL);
    dcp_tiers *tiers = tiers_open(&t, s);
    for (uint64_t step = 1; step <= 4; step++) {
        held h;
        held_make(&h, g, ROWS, s->rank, s->size, 1);
        SUCCEEDS(dcp_tiers_save_async(tiers, step, h.state, GIVEN_JSON, NULL, err));
        while (!dcp_tiers_is_done(tiers)) use_hdf5();
        SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
        for (int i = 0; i < 20; i++) use_hdf5();
        check_printing(messages);
        held_free(&h);
    }
    dcp_tiers_close(tiers);
    check_printing(messages);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    int messages = 0;
    program_thread = syscall(SYS_gettid);
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    CHECK(H5Eset_auto2(H5E_DEFAULT, own_printing, &messages) >= 0);
    save_beside(&s, &g, &messages);
    fill_beside(&s, &g, &messages);
    CHECK(calls > 0 && calls_elsewhere == 0 && messages == 0);
    given_free(&g);
    return scratch_end(&s);
}
