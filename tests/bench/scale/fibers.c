#include "fibers.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "world.h"

#define STACK_BYTES ((size_t)192 << 10)

/* A fiber begins by way of its context; from then on jumps do, which leave signals alone and so are
 * no system calls. */
typedef struct fiber {
    ucontext_t context;
    jmp_buf place;
    int has_begun;
    const uint64_t *gate; /* NULL: it waits for nothing */
    uint64_t closed;      /* what *gate was */
    int has_ended;
} fiber;

static struct {
    fiber *list;
    jmp_buf scheduler;
    const fibers_user *user;
    int running;
} all;

static void begin(void) {
    fiber *f = &all.list[all.running];
    all.user->run(all.user->ctx, all.running);
    f->has_ended = 1;
    _longjmp(all.scheduler, 1);
}

void fibers_wait(const uint64_t *gate) {
    fiber *f = &all.list[all.running];
    f->gate = gate;
    f->closed = *gate;
    if (!_setjmp(f->place)) _longjmp(all.scheduler, 1);
}

static int can_go_on(const fiber *f) {
    return !f->has_ended && (!f->gate || *f->gate != f->closed);
}

static void go_on(int number) {
    fiber *f = &all.list[number];
    all.running = number;
    f->gate = NULL;
    all.user->enter(all.user->ctx, number);
    if (!_setjmp(all.scheduler)) {
        if (f->has_begun) _longjmp(f->place, 1);
        f->has_begun = 1;
        setcontext(&f->context);
    }
    all.user->leave(all.user->ctx, all.running);
}

void fibers_run(int n, const fibers_user *user) {
    const size_t bytes = (size_t)n * STACK_BYTES;
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(stacks != MAP_FAILED);
    all.list = calloc((size_t)n, sizeof *all.list);
    NEED(all.list);
    all.user = user;
    for (int i = 0; i < n; i++) {
        ucontext_t *context = &all.list[i].context;
        NEED(getcontext(context) == 0);
        context->uc_stack.ss_sp = stacks + (size_t)i * STACK_BYTES;
        context->uc_stack.ss_size = STACK_BYTES;
        makecontext(context, begin, 0);
    }
    for (int left = n; left;) {
        int went = 0;
        for (int i = 0; i < n; i++) {
            if (!can_go_on(&all.list[i])) continue;
            go_on(i);
            went = 1;
            left -= all.list[i].has_ended;
        }
        NEED(went); /* else each waits for another */
    }
    free(all.list);
    munmap(stacks, bytes);
}
