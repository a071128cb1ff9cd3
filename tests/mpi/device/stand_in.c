/* A stream is a list of tasks; waiting for an event performs those up to it. */
#include "stand_in.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/crc64.h"
#include "support/check.h"

typedef struct task {
    unsigned char *to;
    const unsigned char *from;
    uint64_t bytes;
    int is_sum;
    int uses_pinned;
    void *owned; /* freed with it */
    struct task *next;
} task;

typedef struct stream {
    task *first, **end;
    unsigned n;
    task **after[64]; /* an event's: the end of the list when it was recorded; NULL: never */
} stream;

static int call(stand_in *d, stand_in_call what) {
    d->calls[what]++;
    if (d->fails_in[what] < 0) return 0;
    return d->fails_in[what]-- == 0 ? 77 : 0;
}

static task *new_task(unsigned char *to, const unsigned char *from, uint64_t bytes, int is_sum) {
    task *t = calloc(1, sizeof *t);
    CHECK(t && bytes);
    *t = (task){.to = to, .from = from, .bytes = bytes, .is_sum = is_sum};
    return t;
}

static void append(stream *s, task *t) {
    *s->end = t;
    s->end = &t->next;
}

/* Between page-locked memory and the device. */
static void append_copy(stand_in *d, stream *s, task *t) {
    t->uses_pinned = 1;
    d->using_pinned++;
    append(s, t);
}

static void perform(stand_in *d, const task *t) {
    uint64_t sum;
    if (t->is_sum) {
        sum = core_crc64_raw(0, t->from, t->bytes);
        memcpy(t->to, &sum, sizeof sum);
        return;
    }
    memcpy(t->to, t->from, t->bytes);
    if (d->flips_in >= 0 && d->flips_in-- == 0) t->to[t->bytes / 2] ^= 4;
}

/* Performs all tasks until `end` is the end of the list. */
static void perform_until(stand_in *d, stream *s, task **end) {
    while (s->first && end != &s->first) {
        task *t = s->first;
        int is_last = end == &t->next;
        perform(d, t);
        d->using_pinned -= t->uses_pinned;
        s->first = t->next;
        for (unsigned i = 0; i < s->n; i++)
            if (s->after[i] == &t->next) s->after[i] = &s->first;
        if (s->end == &t->next) s->end = &s->first;
        free(t->owned);
        free(t);
        if (is_last) return;
    }
}

unsigned char *stand_in_see(const stand_in *d, const void *memory) {
    const unsigned char *at = memory;
    CHECK(at >= d->memory && at < d->memory + d->room);
    return d->behind + (at - d->memory);
}

static int alloc_pinned(void *ctx, uint64_t bytes, void **out) {
    stand_in *d = ctx;
    uint64_t *memory = NULL;
    int code = call(d, STAND_IN_ALLOC);
    if (code) return code;
    CHECK(posix_memalign((void **)&memory, 4096, bytes + 4096) == 0 && memory);
    memory[0] = bytes;
    d->pinned += bytes;
    if (d->pinned > d->pinned_most) d->pinned_most = d->pinned;
    *out = memory + 512;
    memset(*out, 0xab, bytes);
    return 0;
}

static void free_pinned(void *ctx, void *memory) {
    stand_in *d = ctx;
    uint64_t *start = (uint64_t *)memory - 512;
    CHECK(!d->using_pinned); /* otherwise a copy may still be in progress */
    d->pinned -= start[0];
    free(start);
}

static int open_stream(void *ctx, unsigned events, void **out) {
    stand_in *d = ctx;
    int code = call(d, STAND_IN_OPEN);
    if (code) return code;
    stream *s = calloc(1, sizeof *s);
    CHECK(s && events <= 64);
    s->end = &s->first;
    s->n = events;
    d->streams++;
    *out = s;
    return 0;
}

static void close_stream(void *ctx, void *opened) {
    stand_in *d = ctx;
    stream *s = opened;
    perform_until(d, s, s->end);
    d->streams--;
    free(s);
}

static int follow(void *ctx, void *opened) {
    stand_in *d = ctx;
    stream *s = opened, *program = d->program;
    int code = call(d, STAND_IN_FOLLOW);
    if (code || !program->first) return code;
    *s->end = program->first;
    s->end = program->end;
    program->first = NULL;
    program->end = &program->first;
    return 0;
}

static int to_host(void *ctx, void *opened, void *pinned, const void *memory, uint64_t bytes) {
    stand_in *d = ctx;
    int code = call(d, STAND_IN_TO_HOST);
    if (code) return code;
    memset(pinned, 0xa5, bytes); /* the content until the copy happens */
    append_copy(d, opened, new_task(pinned, stand_in_see(d, memory), bytes, 0));
    return 0;
}

static int to_device(void *ctx, void *opened, void *memory, const void *pinned, uint64_t bytes) {
    stand_in *d = ctx;
    int code = call(d, STAND_IN_TO_DEVICE);
    if (!code) append_copy(d, opened, new_task(stand_in_see(d, memory), pinned, bytes, 0));
    return code;
}

static int checksum(void *ctx, void *opened, const void *memory, uint64_t bytes, uint64_t *pinned) {
    stand_in *d = ctx;
    int code = call(d, STAND_IN_CHECKSUM);
    if (code) return code;
    *pinned = 0x5a5a5a5a5a5a5a5a;
    append_copy(d, opened, new_task((unsigned char *)pinned, stand_in_see(d, memory), bytes, 1));
    return 0;
}

static int record(void *ctx, void *opened, unsigned event) {
    stream *s = opened;
    int code = call(ctx, STAND_IN_RECORD);
    CHECK(event < s->n);
    if (!code) s->after[event] = s->end;
    return code;
}

static int wait_for(void *ctx, void *opened, unsigned event) {
    stand_in *d = ctx;
    stream *s = opened;
    int code = call(d, STAND_IN_WAIT);
    CHECK(event < s->n && s->after[event]);
    if (!code) perform_until(d, s, s->after[event]);
    return code;
}

static const char *error_text(void *ctx, int code) {
    (void)ctx;
    return code == 77 ? "failed as it was told" : "no such error";
}

void stand_in_fail(stand_in *d, const stand_in_failure *how) {
    if (how->call == STAND_IN_CALLS)
        d->flips_in = how->after;
    else
        d->fails_in[how->call] = how->after;
}

void stand_in_mend(stand_in *d) {
    for (int i = 0; i < STAND_IN_CALLS; i++) d->fails_in[i] = -1;
    d->flips_in = -1;
}

void stand_in_make(stand_in *d, uint64_t room) {
    int fd = memfd_create("device", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)room) == 0);
    stream *program = calloc(1, sizeof *program);
    CHECK(program);
    program->end = &program->first;
    *d = (stand_in){.device = {.size = sizeof(dcp_device),
                               .name = "stand-in:0",
                               .ctx = d,
                               .alloc_pinned = alloc_pinned,
                               .free_pinned = free_pinned,
                               .open = open_stream,
                               .close = close_stream,
                               .follow = follow,
                               .to_host = to_host,
                               .to_device = to_device,
                               .checksum = checksum,
                               .record = record,
                               .wait = wait_for,
                               .error_text = error_text},
                    .memory = mmap(NULL, room, PROT_NONE, MAP_SHARED, fd, 0),
                    .behind = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
                    .room = room,
                    .program = program};
    CHECK(d->memory != MAP_FAILED && d->behind != MAP_FAILED);
    close(fd);
    stand_in_mend(d);
}

void stand_in_free(stand_in *d) {
    CHECK(!d->streams && !d->pinned);
    stand_in_clear(d);
    free(d->program);
    munmap(d->memory, d->room);
    munmap(d->behind, d->room);
}

void *stand_in_alloc(stand_in *d, uint64_t bytes, unsigned odd) {
    uint64_t at = (d->used + 255) / 256 * 256 + odd;
    d->used = at + bytes;
    CHECK(d->used <= d->room);
    return d->memory + at;
}

static void drop(stream *s) {
    for (task *t = s->first, *next; t; t = next) {
        next = t->next;
        free(t->owned);
        free(t);
    }
    s->first = NULL;
    s->end = &s->first;
}

void stand_in_clear(stand_in *d) {
    drop(d->program);
    d->used = 0;
}

void stand_in_launch(stand_in *d, void *memory, const void *bytes, uint64_t n) {
    unsigned char *kept = malloc(n);
    CHECK(kept);
    memcpy(kept, bytes, n);
    task *t = new_task(stand_in_see(d, memory), kept, n, 0);
    t->owned = kept;
    append(d->program, t);
}
