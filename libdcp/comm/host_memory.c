/* The first rank makes a file that exists in memory alone. The others open it through /proc, which
 * the kernel allows where a process could trace the first one: the same user, the same process
 * namespace. In another container that path may lead to another file, so device and inode are
 * compared. */
#include "comm/host_memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file_limit.h"
#include "dcp/mpi.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static void identify(int fd, comm_memory_file *file) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return;
    file->device = st.st_dev;
    file->inode = st.st_ino;
}

/* Whether vm.overcommit_memory is 2: the kernel promises no more memory than there is. */
static int memory_is_counted(void) {
    char mode = 0;
    const int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, &mode, 1);
    close(fd);
    return n == 1 && mode == '2';
}

/* A page is made when it is first touched, near the processor that touches it. Where memory is
 * counted, a page that cannot be had then ends the process by SIGBUS, so all pages are taken now. */
static int set_size(int fd, size_t bytes) {
    if (core_file_limit_check(bytes)) return -1;
    return memory_is_counted() ? fallocate(fd, 0, 0, (off_t)bytes) : ftruncate(fd, (off_t)bytes);
}

int comm_memory_file_make(size_t bytes, comm_memory_file *file) {
    int fd = memfd_create("dcp", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0) fd = memfd_create("dcp", MFD_CLOEXEC); /* kernels before 6.3 */
    if (fd >= 0 && set_size(fd, bytes) != 0) {
        close(fd);
        return -1;
    }
    file->pid = getpid();
    file->fd = fd;
    identify(fd, file);
    return fd;
}

int comm_memory_file_open(const comm_memory_file *file) {
    char path[64];
    comm_memory_file found = {0};
    if (file->fd < 0) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)file->pid, (int)file->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    identify(fd, &found);
    if (found.device == file->device && found.inode == file->inode) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Collective: whether all ranks are where the first one is. */
static int is_one_host(dcp_comm *comm, uint64_t *one, dcp_error *err) {
    comm_place first = comm->place;
    int status = comm_broadcast(comm, &first, sizeof first, 0, err);
    *one = !status && comm_place_is_same(&comm->place, &first);
    return status ? status : comm_allreduce(comm, one, 1, DCP_REDUCE_MIN, err);
}

void *comm_memory_file_map(int fd, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err) {
    comm_memory_file file = {.fd = -1};
    uint64_t ok;
    int fd = -1, status = is_one_host(comm, &ok, err);
    if (status || !ok) return status;
    if (comm->rank == 0) fd = comm_memory_file_make(bytes, &file);
    status = comm_broadcast(comm, &file, sizeof file, 0, err);
    if (!status && comm->rank > 0) fd = comm_memory_file_open(&file);
    void *memory = !status && fd >= 0 ? comm_memory_file_map(fd, bytes) : NULL;
    ok = memory != NULL;
    if (!status) status = comm_allreduce(comm, &ok, 1, DCP_REDUCE_MIN, err); /* all opened it */
    if (fd >= 0) close(fd);
    if (!status && ok)
        *out = memory;
    else
        dcp_host_memory_free(memory, bytes);
    return status;
}

void dcp_host_memory_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}
