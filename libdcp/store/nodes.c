/* Who shares a directory, and what all nodes have. A directory is known by the kernel that runs,
 * the file system's device and the inode; so ranks in different mount namespaces of one host are
 * told apart, or found to be together, by what they see. */
#include "store/nodes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "step/list.h"

typedef struct place {
    char host[40]; /* the boot's UUID, or where that can't be read the host's name */
    uint64_t device, inode, rank;
} place;

static void name_host(char *host, size_t size) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, host, size - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) gethostname(host, size - 1);
}

static int compare_places(const place *x, const place *y) {
    return memcmp(x, y, offsetof(place, rank));
}

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    int order = compare_places(x, y);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Rank 0: each rank's leader, and after them the number of nodes. */
static void choose_leaders(place *places, size_t n, uint64_t *leaders) {
    leaders[n] = 0;
    qsort(places, n, sizeof *places, by_place);
    for (size_t i = 0, first = 0; i < n; i++) {
        if (i == 0 || compare_places(&places[i], &places[first]) != 0) {
            first = i;
            leaders[n]++;
        }
        leaders[places[i].rank] = places[first].rank;
    }
}

int nodes_find(dcp_comm *comm, int dir_fd, const char *dir, int *leader, int *nodes,
               dcp_error *err) {
    size_t n = (size_t)comm->size;
    struct stat st;
    place own = {.rank = (uint64_t)comm->rank};
    place *places = comm->rank == 0 ? calloc(n, sizeof *places) : NULL;
    uint64_t *leaders = calloc(n + 1, sizeof *leaders);
    int status = DCP_OK;
    if (!leaders || (comm->rank == 0 && !places)) status = core_fail_memory(err, n * sizeof own);
    if (!status && fstat(dir_fd, &st) != 0) status = core_fail_errno(err, "cannot look at", dir);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    name_host(own.host, sizeof own.host);
    own.device = st.st_dev;
    own.inode = st.st_ino;
    status = comm_gather(comm, &own, sizeof own, places, 0, err);
    if (status) goto free_all;
    if (comm->rank == 0) choose_leaders(places, n, leaders);
    status = comm_broadcast(comm, leaders, (n + 1) * sizeof *leaders, 0, err);
    if (status) goto free_all;
    *leader = (int)leaders[comm->rank];
    *nodes = (int)leaders[n];
free_all:
    free(places);
    free(leaders);
    return status;
}

/* What some node lacks can't be the answer: the lowest of the nodes' newest steps is tried next. */
int nodes_newest_step(dcp_store *store, const dcp_step *steps, size_t n, uint64_t *step, int *found,
                      dcp_error *err) {
    for (uint64_t limit = *step;;) {
        uint64_t least[2] = {UINT64_MAX, UINT64_MAX};
        if (store_leads(store) || store->nodes == 1) {
            least[0] = step_list_newest_below(steps, n, limit);
            least[1] = ~least[0];
        }
        int status = DCP_OK;
        if (store->nodes > 1) status = comm_allreduce(store->comm, least, 2, DCP_REDUCE_MIN, err);
        if (status) return status;
        *found = least[0] > 0;
        if (least[0] == 0) return DCP_OK;
        *step = least[0] - 1;
        if (least[0] == ~least[1]) return DCP_OK;
        limit = least[0];
    }
}
