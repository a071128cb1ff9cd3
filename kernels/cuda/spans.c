/* Measures spans with the device's clock: an event is recorded on the stream when a span begins,
 * and thus when the previous one ends. The host does not wait for events. It checks which events
 * have passed, and reads the time between two successive events. */
#include <stdlib.h>

#include "cuda/common/cuda_state.h"

/* More than four times the number of stages in a micro-batch; the host checks the events at least
 * once per micro-batch. */
enum { EVENTS = 2048 };

struct cuda_spans {
    cudaEvent_t events[EVENTS];
    unsigned begins[EVENTS]; /* the span that begins at the event */
    size_t oldest, n;        /* the recorded events that have not been read; a ring */
    unsigned now;
    double seconds[KERNELS_SPANS + 1]; /* the last element: work outside any span */
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

/* Adds up the times of the spans that have ended. */
static void take_spans(kernels *k) {
    struct cuda_spans *s = cuda_of(k)->spans;
    while (s->n > 1) {
        float ms = 0;
        const cudaError_t end = cudaEventQuery(s->events[after_oldest(s)]);
        if (end == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* clears the error, which the next launch would report */
            return;
        }
        cuda_check(k, end);
        cuda_check(k, cudaEventElapsedTime(&ms, s->events[s->oldest], s->events[after_oldest(s)]));
        s->seconds[s->begins[s->oldest]] += (double)ms / 1e3;
        s->oldest = after_oldest(s);
        s->n--;
    }
}

/* If all events are pending, waits for the end of the oldest span; the device has enough work
 * meanwhile. */
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
