/* The device's clock: an event on the stream when a span begins, and another one when the next span
 * does. The host does not wait for them: it checks which have passed, and reads the time between
 * two. */
#include <stdlib.h>

#include "cuda/common/cuda_state.h"

/* More than four times the stages of a micro-batch: the events are checked at least that often. */
enum { EVENTS = 2048 };

struct cuda_spans {
    cudaEvent_t events[EVENTS];
    unsigned begins[EVENTS]; /* the span that begins with the event */
    size_t oldest, n;        /* recorded events that have not been read, in a ring */
    unsigned now;
    double seconds[KERNELS_SPANS + 1]; /* the last: of no span */
};

struct cuda_spans *cuda_spans_open(void) {
    struct cuda_spans *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->now = KERNELS_NO_SPAN;
    for (size_t i = 0; i < EVENTS; i++)
        if (cudaEventCreateWithFlags(&s->events[i], cudaEventDefault) != cudaSuccess) {
            cuda_spans_close(s);
            return NULL;
        }
    return s;
}

void cuda_spans_close(struct cuda_spans *s) {
    for (size_t i = 0; s && i < EVENTS && s->events[i]; i++) cudaEventDestroy(s->events[i]);
    free(s);
}

static size_t after_oldest(const struct cuda_spans *s) { return (s->oldest + 1) % EVENTS; }

/* Adds up the spans that have ended. */
static void take_spans(kernels *k) {
    struct cuda_spans *s = cuda_of(k)->spans;
    while (s->n > 1) {
        float ms = 0;
        const cudaError_t end = cudaEventQuery(s->events[after_oldest(s)]);
        if (end == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* the next launch would otherwise report it */
            return;
        }
        cuda_check(k, end);
        cuda_check(k, cudaEventElapsedTime(&ms, s->events[s->oldest], s->events[after_oldest(s)]));
        s->seconds[s->begins[s->oldest]] += (double)ms / 1e3;
        s->oldest = after_oldest(s);
        s->n--;
    }
}

/* If all events are pending, the device has so much to do that the host may wait for one. */
static void make_event_free(kernels *k) {
    struct cuda_spans *s = cuda_of(k)->spans;
    if (s->n < EVENTS) return;
    take_spans(k);
    if (s->n < EVENTS) return;
    cuda_check(k, cudaEventSynchronize(s->events[after_oldest(s)]));
    take_spans(k);
    if (s->n == EVENTS) s->n = 0; /* the device has failed, and sync reports it */
}

static void cuda_span(kernels *k, unsigned span) {
    struct cuda_spans *s = cuda_of(k)->spans;
    if (span == s->now) return;
    make_event_free(k);
    const size_t next = (s->oldest + s->n++) % EVENTS;
    cuda_check(k, cudaEventRecord(s->events[next], cuda_of(k)->stream));
    s->begins[next] = s->now = span;
}

static int cuda_read_spans(kernels *k, double *seconds) {
    const struct cuda_spans *s = cuda_of(k)->spans;
    take_spans(k);
    for (size_t i = 0; i < KERNELS_SPANS; i++) seconds[i] = s->seconds[i];
    return 1;
}

void cuda_spans_fill(kernels *k) {
    k->span = cuda_span;
    k->spans = cuda_read_spans;
}
