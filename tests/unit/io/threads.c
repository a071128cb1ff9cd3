/* Requests are in flight even without io_uring: the kernel holds every write (seccomp's
 * notifications) until IO_SLOTS of them have begun, which requires threads besides the caller's. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "format/index.h"
#include "io/queue.h"
#include "support/core_fixture.h"
#include "support/store_fixture.h"

/* Returns a descriptor that reports each pwrite64 of this thread and of those that it starts
 * later. */
static int hold_writes(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static int held; /* hold_writes' descriptor */

static void writes_are_in_flight_together(void **state) {
    char path[100];
    struct scratch *s = *state;
    struct seccomp_notif begun[IO_SLOTS] = {0};
    io_queue *q;
    io_file file;
    snprintf(path, sizeof path, "%s/file", s->root);
    assert_int_equal(io_create(path, IO_SLOTS * PAGE_BYTES, NULL), DCP_OK);
    assert_int_equal(io_open(path, 1, &file, NULL), DCP_OK);
    assert_int_equal(io_queue_create_threads(&q, NULL), DCP_OK);
    for (unsigned i = 0; i < IO_SLOTS; i++) {
        unsigned slot = io_queue_next_slot(q);
        io_queue_write(q, slot, &file, io_queue_buffer(q, slot), PAGE_BYTES, i * PAGE_BYTES);
    }
    for (unsigned i = 0; i < IO_SLOTS; i++)
        assert_int_equal(ioctl(held, SECCOMP_IOCTL_NOTIF_RECV, &begun[i]), 0);
    for (unsigned i = 0; i < IO_SLOTS; i++) {
        struct seccomp_notif_resp go = {.id = begun[i].id,
                                        .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        assert_int_equal(ioctl(held, SECCOMP_IOCTL_NOTIF_SEND, &go), 0);
    }
    io_queue_drain(q);
    assert_int_equal(io_queue_status(q, NULL), DCP_OK);
    io_queue_destroy(q);
    io_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(writes_are_in_flight_together)};
    alarm(60); /* a write of this thread would wait for itself */
    held = hold_writes();
    if (held < 0) {
        printf("seccomp notifications are not allowed here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
