/* The queue: data arrives, failures are reported, nothing hangs; with io_uring, without it, and if
 * the kernel refuses it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "format/index.h"
#include "io/queue.h"
#include "support/core_fixture.h"
#include "support/store_fixture.h"

#define BYTES (2000ULL * PAGE_BYTES)

/* Makes the system call fail with `code` in this process. */
static int refuse(long call, int code) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int (*create)(io_queue **, dcp_error *) = io_queue_create;

static io_queue *make_queue(void) {
    io_queue *q;
    assert_int_equal(create(&q, NULL), DCP_OK);
    return q;
}

static io_file open_file(const struct scratch *s, char *path, uint64_t bytes, int writing) {
    io_file file;
    snprintf(path, 100, "%s/file", s->root);
    if (bytes) assert_int_equal(io_create(path, bytes, NULL), DCP_OK);
    assert_int_equal(io_open(path, writing, &file, NULL), DCP_OK);
    return file;
}

static uint64_t any_part(uint64_t left) {
    uint64_t part = PAGE_BYTES * between(1, any() % 8 ? 20 : IO_SLOT_BYTES / PAGE_BYTES);
    return part < left ? part : left;
}

static void write_all(io_queue *q, io_file *file, const unsigned char *data) {
    for (uint64_t at = 0, part; at < BYTES; at += part) {
        part = any_part(BYTES - at);
        unsigned slot = io_queue_next_slot(q);
        unsigned char *buffer = io_queue_buffer(q, slot);
        uint64_t half = part / 2 / PAGE_BYTES * PAGE_BYTES; /* a slot may have several requests */
        memcpy(buffer, data + at, part);
        io_queue_write(q, slot, file, buffer + half, part - half, at + half);
        io_queue_write(q, slot, file, buffer, half, at);
    }
    io_queue_drain(q);
}

static void read_all(io_queue *q, io_file *file, unsigned char *data) {
    uint64_t from[IO_SLOTS] = {0}, bytes[IO_SLOTS] = {0};
    for (uint64_t at = 0, part; at < BYTES; at += part) {
        part = any_part(BYTES - at);
        unsigned slot = io_queue_next_slot(q);
        memcpy(data + from[slot], io_queue_buffer(q, slot), bytes[slot]);
        io_queue_read(q, slot, file, io_queue_buffer(q, slot), part, at);
        from[slot] = at;
        bytes[slot] = part;
    }
    io_queue_drain(q);
    for (unsigned slot = 0; slot < IO_SLOTS; slot++)
        memcpy(data + from[slot], io_queue_buffer(q, slot), bytes[slot]);
}

static void data_comes_back(void **state) {
    char path[100];
    io_queue *q = make_queue();
    unsigned char *data = any_bytes(BYTES), *back = calloc(BYTES, 1);
    io_file file = open_file(*state, path, BYTES, 1);
    write_all(q, &file, data);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    assert_int_equal(io_sync(&file, NULL), DCP_OK);
    io_close(&file);
    file = open_file(*state, path, 0, 0);
    read_all(q, &file, back);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    assert_memory_equal(data, back, BYTES);
    io_close(&file);
    io_queue_destroy(q);
    free(data);
    free(back);
}

static void a_file_that_ends_early_is_an_error(void **state) {
    char path[100];
    dcp_error err = {0};
    io_queue *q = make_queue();
    io_file file = open_file(*state, path, 3 * PAGE_BYTES, 0);
    unsigned slot = io_queue_next_slot(q);
    io_queue_read(q, slot, &file, io_queue_buffer(q, slot), 2 * PAGE_BYTES, 0);
    io_queue_wait(q, slot);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    io_queue_read(q, slot, &file, io_queue_buffer(q, slot), 2 * PAGE_BYTES, 2 * PAGE_BYTES);
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, &err), DCP_ERR_IO);
    assert_non_null(strstr(err.message, "read "));
    assert_non_null(strstr(err.message, path));
    io_close(&file);
    io_queue_destroy(q);
}

static void a_full_disk_is_told_apart(void **state) {
    (void)state;
    dcp_error err = {0};
    io_queue *q = make_queue();
    io_file file = {.fd = open("/dev/full", O_WRONLY), .memory_align = 1, .path = "/dev/full"};
    assert_true(file.fd >= 0);
    for (int i = 0; i < 100; i++) {
        unsigned slot = io_queue_next_slot(q);
        io_queue_write(q, slot, &file, io_queue_buffer(q, slot), PAGE_BYTES, 0);
    }
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, &err), DCP_ERR_NO_SPACE);
    assert_non_null(strstr(err.message, "write /dev/full"));
    io_close(&file);
    io_queue_destroy(q);
}

static void after_a_failure_nothing_is_written(void **state) {
    char path[100], content[5] = "";
    io_queue *q = make_queue();
    io_file good = open_file(*state, path, PAGE_BYTES, 1), bad = {.fd = -1, .path = "none"};
    unsigned char *buffer = io_queue_buffer(q, 0);
    memcpy(buffer, "data", 4);
    io_queue_write(q, 0, &bad, buffer, PAGE_BYTES, 0);
    io_queue_drain(q);
    io_queue_write(q, 0, &good, buffer, PAGE_BYTES, 0);
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, NULL), DCP_ERR_IO);
    io_close(&good);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, content, 4), 4);
    assert_memory_equal(content, "\0\0\0\0", 4);
    close(fd);
    io_queue_destroy(q);
}

/* The kernel refuses O_DIRECT for memory that is not aligned (EINVAL), as some file systems do for
 * any memory: that request, and all later ones, use the page cache. */
static void what_o_direct_refuses_is_written_and_read_all_the_same(void **state) {
    char path[100];
    io_queue *q = make_queue();
    unsigned char *data = any_bytes(10 * PAGE_BYTES);
    io_file file = open_file(*state, path, 10 * PAGE_BYTES, 1);
    unsigned char *buffer = io_queue_buffer(q, 0);
    memcpy(buffer, data, PAGE_BYTES); /* a page of each kind, in flight together */
    memcpy(buffer + PAGE_BYTES + 1, data + PAGE_BYTES, 9 * PAGE_BYTES);
    io_queue_write(q, 0, &file, buffer, PAGE_BYTES, 0);
    for (uint64_t page = 1; page < 10; page++)
        io_queue_write(q, 0, &file, buffer + page * PAGE_BYTES + 1, PAGE_BYTES, page * PAGE_BYTES);
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    assert_int_equal(io_sync(&file, NULL), DCP_OK);
    assert_int_equal(fcntl(file.fd, F_GETFL) & O_DIRECT, 0);
    io_close(&file);
    file = open_file(*state, path, 0, 0);
    io_queue_read(q, 1, &file, io_queue_buffer(q, 1) + 1, 10 * PAGE_BYTES, 0);
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    assert_memory_equal(io_queue_buffer(q, 1) + 1, data, 10 * PAGE_BYTES);
    io_close(&file);
    io_queue_destroy(q);
    free(data);
}

static void turns_begin_anew(void **state) {
    (void)state;
    io_queue *q = make_queue();
    assert_int_equal(io_queue_next_slot(q), 0);
    assert_int_equal(io_queue_next_slot(q), 1);
    io_queue_rewind(q);
    assert_int_equal(io_queue_next_slot(q), 0);
    io_queue_destroy(q);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(data_comes_back),
        scratch_test(a_file_that_ends_early_is_an_error),
        scratch_test(a_full_disk_is_told_apart),
        scratch_test(after_a_failure_nothing_is_written),
        scratch_test(what_o_direct_refuses_is_written_and_read_all_the_same),
        cmocka_unit_test(turns_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_threads(void) {
    create = io_queue_create_threads;
    return run_all();
}

/* Entering the ring fails permanently after it was made. */
static int run_broken_ring_with(int code) {
    char path[100], root[] = "/tmp/dcp-queue-XXXXXX";
    struct scratch s = {0};
    if (!mkdtemp(root)) return 1;
    snprintf(s.root, sizeof s.root, "%s", root);
    io_file file = open_file(&s, path, PAGE_BYTES, 1);
    io_queue *q = make_queue();
    if (!refuse(SYS_io_uring_enter, code)) return 77;
    for (int i = 0; i < 200; i++)
        io_queue_write(q, io_queue_next_slot(q), &file, io_queue_buffer(q, 0), PAGE_BYTES, 0);
    io_queue_drain(q);
    dcp_error err = {0};
    int status = io_queue_status(q, &err);
    io_queue_destroy(q);
    io_close(&file);
    store_directory_remove(AT_FDCWD, root);
    if (status == DCP_OK) return 0; /* there was no ring to break */
    return status != DCP_ERR_IO || err.system_error != code || strcmp(err.path, path) != 0;
}

static int run_broken_ring(void) { return run_broken_ring_with(EIO); }

/* This answer is usually temporary, but not here. */
static int run_short_ring(void) { return run_broken_ring_with(EAGAIN); }

static int run_busy_ring(void) { return run_broken_ring_with(EBUSY); }

/* The kernel has a request for which nobody can wait. */
static int run_mute_ring(void) {
    int ends[2];
    dcp_error err = {0};
    io_queue *q = make_queue();
    if (pipe(ends)) return 1;
    io_file file = {.fd = ends[0], .memory_align = 1, .path = "a pipe"};
    io_queue_read(q, 0, &file, io_queue_buffer(q, 0), PAGE_BYTES, UINT64_MAX);
    io_queue_send(q);
    if (!refuse(SYS_io_uring_enter, EBADF)) return 77;
    io_queue_drain(q);
    const int status = io_queue_status(q, &err);
    io_queue_destroy(q);
    return status != DCP_ERR_IO || err.system_error != EBADF;
}

/* Buffers are not part of a used heap, in which a disk would find each page apart from the one
 * before. */
static int run_used_heap(void) {
    const size_t bytes = (size_t)64 << 20;
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    void *used = malloc(bytes);
    if (!used) return 77;
    const uintptr_t start = (uintptr_t)used;
    free(used);
    io_queue *q = make_queue();
    int within = 0;
    for (unsigned slot = 0; slot < IO_SLOTS; slot++) {
        const uintptr_t at = (uintptr_t)io_queue_buffer(q, slot);
        within |= at >= start && at < start + bytes;
        memset(io_queue_buffer(q, slot), 1, IO_SLOT_BYTES);
    }
    io_queue_destroy(q);
    return within;
}

static int has_io_uring(void) {
    const long fd = syscall(SYS_io_uring_setup, 0, NULL);
    return fd >= 0 || errno != EFAULT;
}

/* Runs in a child, because a filter remains for the rest of a process. */
static int in_child(int (*run)(void), long refused) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        int result = refused && !refuse(refused, EPERM) ? 77 : run();
        exit(result);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void) {
    int failed = in_child(run_all, 0), threads = in_child(run_threads, 0);
    int without = in_child(run_all, SYS_io_uring_setup), broken = in_child(run_broken_ring, 0);
    int heap = in_child(run_used_heap, 0);
    int has_ring = !in_child(has_io_uring, 0), mute = has_ring ? in_child(run_mute_ring, 0) : 77;
    int is_short = in_child(run_short_ring, 0), busy = in_child(run_busy_ring, 0);
    printf(
        "with io_uring: %d, threads: %d, refused: %d, heap: %d, broken: %d, mute: %d, short: %d, "
        "busy: %d (77: no seccomp, or no ring)\n",
        failed, threads, without, heap, broken, mute, is_short, busy);
    return failed || threads || heap || (without && without != 77) || (broken && broken != 77) ||
           (mute && mute != 77) || (is_short && is_short != 77) || (busy && busy != 77);
}
