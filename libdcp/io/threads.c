/* A pool of threads takes jobs from one list, in the order of submission, and puts completed jobs
 * into another list. */
#include "io/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/system.h"

#define STACK_BYTES (512u << 10)

typedef struct job_list {
    io_job *first, **end;
    pthread_cond_t changed;
} job_list;

struct io_threads {
    pthread_mutex_t lock;
    job_list waiting, done;
    bool ending;
    unsigned n;
    pthread_t ids[];
};

static void list_init(job_list *list) {
    list->first = NULL;
    list->end = &list->first;
    pthread_cond_init(&list->changed, NULL);
}

static void append(job_list *list, io_job *job) {
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
    pthread_cond_signal(&list->changed);
}

static io_job *remove_first(job_list *list) {
    io_job *job = list->first;
    list->first = job->next;
    if (!list->first) list->end = &list->first;
    return job;
}

static void perform(io_job *job) {
    off_t at = (off_t)job->offset;
    ssize_t n = job->writing ? pwrite(job->fd, job->buffer, job->bytes, at)
                             : pread(job->fd, job->buffer, job->bytes, at);
    job->result = n < 0 ? -errno : n;
}

static void *work(void *ctx) {
    io_threads *t = ctx;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->waiting.first && !t->ending) pthread_cond_wait(&t->waiting.changed, &t->lock);
        if (!t->waiting.first) break;
        io_job *job = remove_first(&t->waiting);
        pthread_mutex_unlock(&t->lock);
        perform(job);
        pthread_mutex_lock(&t->lock);
        append(&t->done, job);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int start_thread(pthread_t *id, void *(*fn)(void *), void *ctx) {
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (failed) return failed;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    failed = core_thread_start(id, &attributes, fn, ctx, "dcp-io");
    pthread_attr_destroy(&attributes);
    return failed;
}

io_threads *io_threads_create(unsigned n) {
    io_threads *t = calloc(1, sizeof *t + n * sizeof *t->ids);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    list_init(&t->waiting);
    list_init(&t->done);
    while (t->n < n && !start_thread(&t->ids[t->n], work, t)) t->n++;
    return t;
}

void io_threads_destroy(io_threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ending = true;
    pthread_cond_broadcast(&t->waiting.changed);
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->n; i++) pthread_join(t->ids[i], NULL);
    pthread_cond_destroy(&t->waiting.changed);
    pthread_cond_destroy(&t->done.changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void io_threads_submit(io_threads *t, io_job *job) {
    if (!t->n) perform(job);
    pthread_mutex_lock(&t->lock);
    append(t->n ? &t->waiting : &t->done, job);
    pthread_mutex_unlock(&t->lock);
}

io_job *io_threads_reap(io_threads *t) {
    pthread_mutex_lock(&t->lock);
    while (!t->done.first) pthread_cond_wait(&t->done.changed, &t->lock);
    io_job *job = remove_first(&t->done);
    pthread_mutex_unlock(&t->lock);
    return job;
}

typedef struct team_member {
    io_threads_fn fn;
    void *ctx;
    unsigned number;
} team_member;

static void *run_member(void *ctx) {
    const team_member *m = ctx;
    m->fn(m->ctx, m->number);
    return NULL;
}

void io_threads_run(unsigned n, io_threads_fn fn, void *ctx) {
    pthread_t ids[IO_THREADS_MAX];
    team_member members[IO_THREADS_MAX];
    unsigned started = 1;
    for (; started < n && started < IO_THREADS_MAX; started++) {
        members[started] = (team_member){fn, ctx, started};
        if (start_thread(&ids[started], run_member, &members[started])) break;
    }
    fn(ctx, 0);
    while (started-- > 1) pthread_join(ids[started], NULL);
}

unsigned io_threads_cores(int ranks, unsigned most) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    cores /= ranks > 0 ? ranks : 1;
    if (cores < 1) return 1;
    return (unsigned)cores < most ? (unsigned)cores : most;
}
