/* The order of libdcp/device/cuda.c's work on CUDA's streams, checked on a runtime that does
 * nothing until somebody waits: copies to the host continue while checksums wait for room on the
 * device; everything comes after the program's work; and what was written is visible to later
 * work. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/device.h"
#include "device/crc64_scheme.h"
#include "support/core_fixture.h"

enum { MOST = 64 };

struct late_event {
    struct late_stream *of;
    unsigned asked, done; /* times recorded */
};

typedef enum what { COPY, CLEAR, SUM, RECORD, WAIT } what;

typedef struct op {
    what what;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    cudaEvent_t event;
    struct late_stream *of; /* that recorded it */
    unsigned time;
} op;

struct late_stream {
    op ops[MOST];
    unsigned given, done;
};

static struct late_stream program;
static int is_full; /* the device has no room for kernels */
static int legacy_waits;

static int advance(struct late_stream *s);

/* A sum of bytes is sufficient here. */
static void sum(const op *o) {
    uint64_t total = 0;
    for (size_t i = 0; i < o->bytes; i++) total += o->from[i];
    memcpy(o->to, &total, sizeof total);
}

/* Returns nonzero if the operation is done. */
static int perform(const op *o) {
    switch (o->what) {
    case COPY:
        memcpy(o->to, o->from, o->bytes);
        return 1;
    case CLEAR:
        memset(o->to, 0, o->bytes);
        return 1;
    case SUM:
        if (!is_full) sum(o);
        return !is_full;
    case RECORD:
        if (o->event->done < o->time) o->event->done = o->time;
        return 1;
    case WAIT:
        if (o->event->done < o->time) advance(o->of);
        return o->event->done >= o->time;
    }
    return 0;
}

static int advance(struct late_stream *s) {
    while (s->done < s->given && perform(&s->ops[s->done])) s->done++;
    return s->done == s->given;
}

static cudaError_t give(cudaStream_t s, op o) {
    if (s->given == MOST) return cudaErrorInvalidValue;
    s->ops[s->given++] = o;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidValue : cudaSuccess; }
cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = calloc(1, bytes);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return cudaMalloc(out, bytes);
}
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    (void)kind;
    return give(s, (op){.what = COPY, .to = to, .from = from, .bytes = bytes});
}
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t s) {
    if (byte) return cudaErrorInvalidValue;
    return give(s, (op){.what = CLEAR, .to = memory, .bytes = bytes});
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    if (flags != cudaStreamNonBlocking || priority) return cudaErrorInvalidValue;
    return cudaMalloc((void **)out, sizeof **out);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return cudaFree(s); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    legacy_waits += s == cudaStreamLegacy;
    return s == cudaStreamLegacy || advance(s) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
    (void)flags;
    return give(s, (op){.what = WAIT, .event = event, .of = event->of, .time = event->asked});
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    if (!(flags & cudaEventDisableTiming)) return cudaErrorInvalidValue;
    return cudaMalloc((void **)out, sizeof **out);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaFree(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
    event->of = s;
    return give(s, (op){.what = RECORD, .event = event, .time = ++event->asked});
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->of) advance(event->of);
    return event->done == event->asked ? cudaSuccess : cudaErrorInvalidValue;
}
const char *cudaGetErrorString(cudaError_t status) { return status ? "failed" : "no error"; }

cudaError_t device_crc64_kernel_launch(const scheme_tables *tables, const void *data,
                                       uint64_t bytes, device_crc64_cell *cell, uint64_t *pinned,
                                       cudaStream_t stream) {
    if (!tables || !cell) return cudaErrorInvalidValue;
    return give(stream, (op){.what = SUM, .to = (void *)pinned, .from = data, .bytes = bytes});
}

typedef struct fixture {
    dcp_device *d;
    void *stream;
    unsigned char device[2][8], host[2][8];
    uint64_t sums[2];
} fixture;

static int set_up(void **state) {
    static fixture f;
    dcp_error err;
    f = (fixture){0};
    program = (struct late_stream){0};
    is_full = legacy_waits = 0;
    if (dcp_device_cuda_create(0, &program, &f.d, &err)) return 1;
    *state = &f;
    return f.d->open(f.d->ctx, 4, &f.stream);
}

static int tear_down(void **state) {
    fixture *f = *state;
    f->d->close(f->d->ctx, f->stream);
    dcp_device_cuda_destroy(f->d);
    return 0;
}

/* A batch of a save: one range, and its checksum. */
static void send(fixture *f, unsigned i) {
    assert_int_equal(f->d->to_host(f->d->ctx, f->stream, f->host[i], f->device[i], 8), 0);
    assert_int_equal(f->d->checksum(f->d->ctx, f->stream, f->device[i], 8, &f->sums[i]), 0);
    assert_int_equal(f->d->record(f->d->ctx, f->stream, i), 0);
}

static void copies_wait_for_no_checksum(void **state) {
    fixture *f = *state;
    static const unsigned char filled[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    give(&program, (op){.what = COPY, .to = f->device[0], .from = filled, .bytes = 8});
    give(&program, (op){.what = COPY, .to = f->device[1], .from = filled, .bytes = 8});
    assert_int_equal(f->d->follow(f->d->ctx, f->stream), 0);
    is_full = 1;
    for (unsigned i = 0; i < 2; i++) send(f, i);
    assert_int_not_equal(f->d->wait(f->d->ctx, f->stream, 1), 0); /* its checksum is missing */
    assert_memory_equal(f->host[0], filled, 8);
    assert_memory_equal(f->host[1], filled, 8);
    is_full = 0;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(f->d->wait(f->d->ctx, f->stream, i), 0);
        assert_int_equal(f->sums[i], 36);
    }
}

static void what_is_written_is_seen(void **state) {
    fixture *f = *state;
    memset(f->host[0], 2, 8);
    assert_int_equal(f->d->to_device(f->d->ctx, f->stream, f->device[0], f->host[0], 8), 0);
    send(f, 0); /* back again */
    memset(f->host[1], 3, 8);
    assert_int_equal(f->d->to_device(f->d->ctx, f->stream, f->device[0], f->host[1], 8), 0);
    assert_int_equal(f->d->record(f->d->ctx, f->stream, 2), 0);
    is_full = 1; /* so the copy back ends before the next one is made */
    assert_int_not_equal(f->d->wait(f->d->ctx, f->stream, 2), 0);
    assert_int_equal(f->host[0][0], 2);
    is_full = 0;
    assert_int_equal(f->d->wait(f->d->ctx, f->stream, 2), 0);
    assert_int_equal(f->sums[0], 16);
    assert_int_equal(f->host[0][0], 2);
    assert_int_equal(f->device[0][0], 3);
}

static void the_tables_have_arrived(void **state) {
    (void)state;
    assert_int_equal(legacy_waits, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copies_wait_for_no_checksum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_written_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_tables_have_arrived, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
