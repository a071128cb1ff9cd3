#include "core/system.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "core/fail.h"

int core_entropy(uint64_t *out, dcp_error *err) {
    ssize_t n;
    do n = getrandom(out, sizeof *out, 0);
    while (n < 0 && errno == EINTR);
    if (n == sizeof *out) return DCP_OK;
    int status = core_fail(err, DCP_ERR_IO, "the system gives no random numbers: getrandom failed");
    if (err) err->system_error = n < 0 ? errno : 0;
    return status;
}

int core_file_limit_check(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY) return 0;
    if (end <= limit.rlim_cur) return 0;
    errno = EFBIG;
    return -1;
}

static struct {
    pthread_once_t once;
    pthread_mutex_t locks[CORE_PROCESS_LOCKS];
    void (*in_child[CORE_PROCESS_LOCKS])(void);
} process = {.once = PTHREAD_ONCE_INIT,
             .locks = {[CORE_LOCK_HDF5] = PTHREAD_MUTEX_INITIALIZER,
                       [CORE_LOCK_OPENED] = PTHREAD_MUTEX_INITIALIZER,
                       [CORE_LOCK_LOCK_FILES] = PTHREAD_MUTEX_INITIALIZER}};

/* Also makes jansson's seed, or waits until another thread has made it. Otherwise a child that is
 * forked while another thread makes the seed would wait for the seed for ever. */
static void acquire_all(void) {
    json_object_seed(0);
    for (size_t i = 0; i < CORE_PROCESS_LOCKS; i++) pthread_mutex_lock(&process.locks[i]);
}

static void release_all(void) {
    for (size_t i = CORE_PROCESS_LOCKS; i-- > 0;) pthread_mutex_unlock(&process.locks[i]);
}

static void begin_child(void) {
    for (size_t i = 0; i < CORE_PROCESS_LOCKS; i++)
        if (process.in_child[i]) process.in_child[i]();
    release_all();
}

static void follow_forks(void) { pthread_atfork(acquire_all, release_all, begin_child); }

void core_process_lock_acquire(core_process_lock which) {
    pthread_once(&process.once, follow_forks);
    pthread_mutex_lock(&process.locks[which]);
}

bool core_process_lock_timed_acquire(core_process_lock which, int seconds) {
    struct timespec until;
    pthread_once(&process.once, follow_forks);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return pthread_mutex_timedlock(&process.locks[which], &until) == 0;
}

void core_process_lock_release(core_process_lock which) {
    pthread_mutex_unlock(&process.locks[which]);
}

void core_process_lock_on_fork(core_process_lock which, void (*fn)(void)) {
    process.in_child[which] = fn;
}
