/* Conformance: memory of the host that kernels reach, and what a backend says of its device. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_cases.h"

/* AdamW, copies and casts read and write it as they do the device's own, to the same bits. */
void case_host_memory(conform *c) {
    enum { N = 1003 };
    const kernels_update options = {.rule = KERNELS_ADAMW,
                                    .lr = 1e-2,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .grad_scale = 1,
                                    .step = 3};
    const float *x = conform_random(c, N), *moments = conform_random(c, N);
    float *grads = conform_floats(c, conform_random(c, N), N);
    float *all = c->k->alloc_host(c->k, 3 * N * sizeof *all), *own[3], *host[3];
    assert_non_null(all);
    c->what = "memory of the host";
    for (int i = 0; i < 3; i++) {
        host[i] = all + i * N;
        for (size_t j = 0; j < N; j++) host[i][j] = i ? moments[j] * moments[j] : x[j];
        own[i] = conform_floats(c, host[i], N);
    }
    c->k->update(c->k, &options, host[0], (void *[]){host[1], host[2]}, grads, N);
    c->k->update(c->k, &options, own[0], (void *[]){own[1], own[2]}, grads, N);
    assert_null(c->k->sync(c->k));
    for (int i = 0; i < 3; i++) {
        const float *want = conform_fetch_floats(c, own[i], N);
        assert_memory_equal(host[i], want, N * sizeof *want);
    }
    uint16_t *narrow = conform_poisoned(c, N, sizeof *narrow);
    uint16_t *narrow_own = conform_poisoned(c, N, sizeof *narrow_own);
    c->k->copy(c->k, own[1], host[0], N);
    void *stream;
    c->k->place(c->k, &stream);
    c->k->narrow(c->k, narrow, host[0], N);
    c->k->narrow_on(c->k, stream, narrow_own, own[0], N);
    c->k->upload(c->k, host[1], x, N * sizeof *x);
    c->k->zero(c->k, host[2], N);
    assert_null(c->k->sync(c->k));
    assert_memory_equal(conform_fetch_floats(c, own[1], N), host[0], N * sizeof *x);
    assert_memory_equal(conform_fetch(c, narrow, N, 2), conform_fetch(c, narrow_own, N, 2), N * 2);
    assert_memory_equal(host[1], x, N * sizeof *x);
    for (size_t j = 0; j < N; j++) assert_true(host[2][j] == 0.0f);
    c->k->free_host(c->k, all);
}

/* None is longer than all of it; where calls are the work, there are none. */
static void case_spans(conform *c) {
    double seconds[KERNELS_SPANS] = {0};
    void *stream;
    float *x = conform_floats(c, conform_random(c, 1000), 1000);
    c->k->span(c->k, 3);
    c->k->scale(c->k, x, 2, 1000);
    c->k->span(c->k, KERNELS_NO_SPAN);
    assert_null(c->k->sync(c->k));
    const int are_measured = c->k->spans(c->k, seconds);
    assert_int_equal(are_measured, c->k->place(c->k, &stream) != KERNELS_HOST);
    assert_true(seconds[3] >= 0 && seconds[3] < 60 && seconds[2] == 0);
}

void case_device(conform *c) {
    uint64_t unused = 1, all = 0, later = 1;
    void *stream;
    c->what = "the device";
    assert_true(strlen(c->k->device(c->k)) > 0);
    c->k->room(c->k, &unused, &all, &later);
    assert_true(unused <= all);
    if (all == 0) assert_true(later == 0);
    assert_int_equal(all == 0, c->k->place(c->k, &stream) == KERNELS_HOST);
    const uint64_t before = c->k->peak(c->k);
    void *memory = c->k->alloc(c->k, 1 << 20);
    const uint64_t after = c->k->peak(c->k);
    c->k->free(c->k, memory);
    assert_int_equal(after > 0, all > 0);
    assert_true(after >= before && c->k->peak(c->k) == after);
    case_spans(c);
}
