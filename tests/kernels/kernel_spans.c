/* The clock of the CUDA backend's work, and the count of its memory, on the emulated device: a span
 * lasts as long as the device is at it, whatever the host does meanwhile; nobody waits for one that
 * is not over; and an event that has not passed is no failure of a kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

enum { MANY = 5000 }; /* more than the backend has events */

static int set_up(void **state) {
    static kernels *k;
    emulated_ms = 0;
    emulated_events_ahead = 0;
    *state = &k;
    return kernels_open("cuda", &k) != KERNELS_OK;
}

static int tear_down(void **state) {
    kernels_close(*(kernels **)*state);
    return 0;
}

static double seconds_of(kernels *k, unsigned span) {
    double seconds[KERNELS_SPANS];
    assert_true(k->spans(k, seconds));
    return seconds[span];
}

static void are_the_devices_seconds(void **state) {
    kernels *k = *(kernels **)*state;
    emulated_ms = 1000;
    k->span(k, 1);
    emulated_ms += 2000;
    k->span(k, KERNELS_NO_SPAN);
    emulated_ms += 16000;
    k->span(k, 2);
    k->span(k, 2);
    emulated_ms += 4000;
    k->span(k, 1);
    emulated_ms += 8000;
    k->span(k, KERNELS_NO_SPAN);
    assert_true(seconds_of(k, 1) == 10);
    assert_true(seconds_of(k, 2) == 4);
    assert_true(seconds_of(k, 0) == 0);
}

static void are_not_waited_for(void **state) {
    kernels *k = *(kernels **)*state;
    k->span(k, 1);
    emulated_ms += 2000;
    k->span(k, 2);
    emulated_ms += 3000;
    k->span(k, KERNELS_NO_SPAN);
    const unsigned waits = emulated_waits;
    emulated_events_ahead = 1; /* the device is still at span 2 */
    assert_true(seconds_of(k, 1) == 2);
    assert_true(seconds_of(k, 2) == 0);
    assert_int_equal(emulated_waits, waits);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_null(k->sync(k)); /* as at the end of a step */
    assert_true(seconds_of(k, 2) == 3);
    assert_int_equal(emulated_waits, waits + 1);
}

/* A host that is far ahead loses none, and waits only then. */
static void may_be_many(void **state) {
    kernels *k = *(kernels **)*state;
    const unsigned waits = emulated_waits;
    for (int i = 0; i < MANY; i++) {
        k->span(k, i % 2 ? 1 : 2);
        emulated_ms += i % 2 ? 1000 : 2000;
    }
    k->span(k, KERNELS_NO_SPAN);
    assert_int_equal(emulated_waits, waits);
    for (int i = 0; i < MANY; i++) {
        emulated_events_ahead = (unsigned)i + 1; /* it stands */
        k->span(k, i % 2 ? 1 : 2);
        emulated_ms += i % 2 ? 1000 : 2000;
    }
    assert_true(emulated_waits > waits);
    k->span(k, KERNELS_NO_SPAN);
    assert_null(k->sync(k));
    assert_true(seconds_of(k, 1) == MANY);
    assert_true(seconds_of(k, 2) == 2 * MANY);
}

static void peaks_stay(void **state) {
    kernels *k = *(kernels **)*state;
    const uint64_t own = k->peak(k);
    void *a = k->alloc(k, 1000), *b = k->alloc(k, 200);
    assert_int_equal(k->peak(k), own + 1200);
    k->free(k, a);
    a = k->alloc(k, 900);
    assert_int_equal(k->peak(k), own + 1200);
    void *c = k->alloc(k, 400);
    assert_int_equal(k->peak(k), own + 1500);
    k->free(k, a);
    k->free(k, b);
    k->free(k, c);
    k->free(k, NULL);
    assert_int_equal(k->peak(k), own + 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(are_the_devices_seconds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(are_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(may_be_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(peaks_stay, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
