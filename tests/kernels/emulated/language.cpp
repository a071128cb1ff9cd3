/* The threads of language.h, as contexts of one thread of the host. */
#include <cuda_runtime_api.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;
thread_local float __align__(256) shared[EMULATED_SHARED / sizeof(float)];

namespace {

enum { MOST_THREADS = 1024, WARP = 32, STACK = 64 << 10, SHOWN = 64 };
enum state { NEW, READY, AT_BLOCK, AT_WARP, DONE };

/* A place to go on. Jumps leave the mask of signals alone, which swapcontext asks the kernel for.
 */
struct place {
    ucontext_t at;
    jmp_buf jump;
    bool begun;
};

struct fiber {
    place at;
    std::unique_ptr<char[]> stack{new char[STACK]};
};

/* What a thread shows to its warp: in turns, so that one may still be read. */
struct shown {
    unsigned turn;
    unsigned char __align__(16) bytes[2][SHOWN];
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct thread {
    state is;
    fiber *on;
    shown shows;
    std::vector<copy> copies;   /* in order */
    std::vector<size_t> groups; /* how many copies there were at the end of each */
};

/* The device has one block at a time, and one thread of the host runs it. */
thread threads[MOST_THREADS];
std::vector<std::unique_ptr<fiber>> fibers; /* all that there are */
std::vector<fiber *> idle;
place scheduler;
const std::function<void()> *run_thread;
unsigned count, left, started;
bool descending;
size_t allowed = EMULATED_SHARED_UNASKED;

void change(place *from, place *to) {
#if defined __SANITIZE_ADDRESS__
    swapcontext(&from->at, &to->at);
#else
    if (_setjmp(from->jump)) return;
    if (to->begun) _longjmp(to->jump, 1);
    to->begun = true;
    setcontext(&to->at);
#endif
}

unsigned in_order(unsigned i) { return descending ? count - 1 - i : i; }

[[noreturn]] void fail(const char *why) {
    fprintf(stderr, "emulated: block %u: %s\n", blockIdx.x, why);
    abort();
}

/* Goes on with threads that nobody has begun, so that those without barriers need one context. Then
 * waits for the next block. */
void run_threads() {
    fiber *own = threads[threadIdx.x].on;
    for (;;) {
        (*run_thread)();
        emulated_check(threads[threadIdx.x].copies.empty(), "a thread left before its copies");
        threads[threadIdx.x].groups.clear(); /* of nothing */
        threads[threadIdx.x].is = DONE;
        left--;
        if (started == count) {
            idle.push_back(own);
            change(&own->at, &scheduler);
            continue;
        }
        threadIdx.x = in_order(started++);
        threads[threadIdx.x].on = own;
    }
}

fiber *new_fiber() {
    fibers.push_back(std::make_unique<fiber>());
    fiber *f = fibers.back().get();
    ucontext_t *at = &f->at.at;
    getcontext(at);
    at->uc_stack.ss_sp = f->stack.get();
    at->uc_stack.ss_size = STACK;
    at->uc_link = nullptr;
    makecontext(at, run_threads, 0);
    return f;
}

void begin(thread *t) {
    if (idle.empty()) idle.push_back(new_fiber());
    t->on = idle.back();
    idle.pop_back();
}

void go_on(unsigned number) {
    thread *t = &threads[number];
    threadIdx.x = number;
    t->is = READY;
    change(&scheduler, &t->on->at);
}

void wait_at(state barrier) {
    thread *t = &threads[threadIdx.x];
    t->is = barrier;
    change(&t->on->at, &scheduler);
}

bool all_are(unsigned from, unsigned to, state s) {
    for (unsigned i = from; i < to; i++)
        if (threads[i].is != s) return false;
    return true;
}

/* Opens the barriers at which everybody waits. */
void open_barriers() {
    bool opened = false;
    for (unsigned from = 0; from < count; from += WARP) {
        const unsigned to = min(from + WARP, count);
        if (!all_are(from, to, AT_WARP)) continue;
        for (unsigned i = from; i < to; i++) threads[i].is = READY;
        opened = true;
    }
    if (opened) return;
    if (!all_are(0, count, AT_BLOCK))
        fail("threads wait at different barriers, or left before one");
    for (unsigned i = 0; i < count; i++) threads[i].is = READY;
}

void run_block() {
    left = count;
    started = 0;
    for (unsigned i = 0; i < count; i++) threads[i].is = NEW;
    while (left) {
        bool moved = false;
        for (unsigned i = 0; i < count; i++) {
            thread *t = &threads[in_order(i)];
            if (t->is == NEW) {
                started = i + 1;
                begin(t);
            } else if (t->is != READY) {
                continue;
            }
            go_on(in_order(i));
            moved = true;
        }
        if (!moved && left) open_barriers();
    }
}

} // namespace

cudaError_t emulated_allow_shared(int bytes) {
    if ((size_t)bytes > EMULATED_SHARED) return cudaErrorInvalidValue;
    allowed = (size_t)bytes;
    return cudaSuccess;
}

/* What a launch allows itself beyond the usual is allowed to it alone. */
cudaError_t emulated_launch(const cudaLaunchConfig_t *config, const std::function<void()> &body) {
    static unsigned random = 1;
    const size_t bytes = config->dynamicSmemBytes;
    const bool fits = bytes <= max(allowed, (size_t)EMULATED_SHARED_UNASKED);
    allowed = EMULATED_SHARED_UNASKED;
    if (!fits || !config->gridDim.x || config->blockDim.x > MOST_THREADS)
        return cudaErrorInvalidValue;
    random = random * 1664525 + 1013904223;
    descending = random >> 31;
    gridDim = config->gridDim;
    blockDim = config->blockDim;
    count = blockDim.x;
    scheduler.begun = true;
    run_thread = &body;
    ASAN_POISON_MEMORY_REGION((char *)shared + bytes, sizeof shared - bytes);
    for (unsigned i = 0; i < gridDim.x; i++) {
        blockIdx.x = descending ? gridDim.x - 1 - i : i;
        memset(shared, 0xff, bytes);
        run_block();
    }
    ASAN_UNPOISON_MEMORY_REGION(shared, sizeof shared);
    return cudaSuccess;
}

void __syncthreads() { wait_at(AT_BLOCK); }

int __syncthreads_or(int holds) {
    static int any;
    any |= holds != 0;
    __syncthreads();
    const int result = any;
    __syncthreads();
    any = 0;
    __syncthreads(); /* nobody begins the next before all have cleared this one */
    return result;
}

void __syncwarp() { wait_at(AT_WARP); }

emulated_shown emulated_exchange(const void *own, size_t bytes) {
    shown *mine = &threads[threadIdx.x].shows;
    const unsigned turn = mine->turn++ % 2;
    if (bytes > SHOWN) fail("too much to show");
    memcpy(mine->bytes[turn], own, bytes);
    __syncwarp();
    return {threads[threadIdx.x / WARP * WARP].shows.bytes[turn], sizeof(thread)};
}

void emulated_check(bool holds, const char *why) {
    if (!holds) fail(why);
}

void emulated_copy_later(void *to, const void *from, size_t bytes) {
    memset(to, 0xff, bytes);
    threads[threadIdx.x].copies.push_back({to, from, bytes});
}

void emulated_copies_close() {
    thread *t = &threads[threadIdx.x];
    t->groups.push_back(t->copies.size());
}

void emulated_copies_wait(size_t pending) {
    thread *t = &threads[threadIdx.x];
    if (t->groups.size() <= pending) return;
    const size_t done = t->groups.size() - pending, made = t->groups[done - 1];
    for (size_t i = 0; i < made; i++) {
        const copy *c = &t->copies[i];
        if (c->from)
            memcpy(c->to, c->from, c->bytes);
        else
            memset(c->to, 0, c->bytes);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (ptrdiff_t)made);
    t->groups.erase(t->groups.begin(), t->groups.begin() + (ptrdiff_t)done);
    for (size_t &end : t->groups) end -= made;
}
