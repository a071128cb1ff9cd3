/* Opening a store. All ranks take part, but each directory is touched by its leader alone, which
 * holds the lock for as long as the store is open; other ranks know only the directory's absolute
 * path. A shared store is a private one with a single node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/checks.h"
#include "core/fail.h"
#include "plan/agreement.h"
#include "redundancy/groups.h"
#include "store/directory.h"
#include "store/domains.h"
#include "store/leftovers.h"
#include "store/lock.h"
#include "store/retention.h"
#include "store/returned.h"
#include "store/store.h"

/* Which directory a rank has: the host, the file system's device and the inode tell. */
typedef struct directory_id {
    comm_place host;
    uint64_t device, inode, rank;
} directory_id;

static int compare_directories(const directory_id *x, const directory_id *y) {
    return memcmp(x, y, offsetof(directory_id, rank));
}

static int by_directory(const void *a, const void *b) {
    const directory_id *x = a, *y = b;
    int order = compare_directories(x, y);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Rank 0: each rank's leader, and after them the number of nodes. */
static void choose_leaders(directory_id *ids, size_t n, uint64_t *leaders) {
    leaders[n] = 0;
    qsort(ids, n, sizeof *ids, by_directory);
    for (size_t i = 0, first = 0; i < n; i++) {
        if (i == 0 || compare_directories(&ids[i], &ids[first]) != 0) {
            first = i;
            leaders[n]++;
        }
        leaders[ids[i].rank] = ids[first].rank;
    }
}

/* Collective: *leader is the lowest rank whose directory `dir_fd` is this rank's, *nodes how many
 * different directories there are. `dir` is for messages. */
static int find_nodes(dcp_comm *comm, int dir_fd, const char *dir, int *leader, int *nodes,
                      dcp_error *err) {
    size_t n = (size_t)comm->size;
    struct stat st;
    directory_id own = {.rank = (uint64_t)comm->rank};
    directory_id *ids = comm->rank == 0 ? calloc(n, sizeof *ids) : NULL;
    uint64_t *leaders = calloc(n + 1, sizeof *leaders);
    int status = DCP_OK;
    if (!leaders || (comm->rank == 0 && !ids)) status = core_fail_memory(err, n * sizeof own);
    if (!status && fstat(dir_fd, &st) != 0) status = core_fail_errno(err, "cannot look at", dir);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    own.host = comm->place;
    own.device = st.st_dev;
    own.inode = st.st_ino;
    status = comm_gather(comm, &own, sizeof own, ids, 0, err);
    if (status) goto free_all;
    if (comm->rank == 0) choose_leaders(ids, n, leaders);
    status = comm_broadcast(comm, leaders, (n + 1) * sizeof *leaders, 0, err);
    if (status) goto free_all;
    *leader = (int)leaders[comm->rank];
    *nodes = (int)leaders[n];
free_all:
    free(ids);
    free(leaders);
    return status;
}

static dcp_store *make_store(dcp_comm *comm, const dcp_store_options *options) {
    dcp_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->comm = comm;
    store->process = getpid();
    store->dir_fd = -1;
    store->nodes = 1;
    store->options = *options;
    const char *domain = store->options.domain;
    store->options.redundancy = NULL;
    store->options.tool = strdup(options->tool ? options->tool : "libdcp");
    store->options.domain = domain ? strdup(domain) : NULL;
    store->dir = calloc(1, PATH_MAX);
    store->pins = store_pins_make();
    if (store->options.tool && store->dir && store->pins && !domain == !store->options.domain)
        return store;
    dcp_store_close(store);
    return NULL;
}

static int open_directory(dcp_store *store, const char *dir, dcp_error *err) {
    if (!store->options.private_dirs && store->comm->rank != 0) return DCP_OK;
    if (!dir) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: dir is NULL");
    return store_directory_open(dir, &store->dir_fd, store->dir, err);
}

/* Where several hosts see one directory, each has a leader, and all but one find it locked. */
static int take_directory(dcp_store *store, dcp_error *err) {
    if (!store_leads(store)) {
        if (store->dir_fd >= 0) close(store->dir_fd);
        store->dir_fd = -1;
        return DCP_OK;
    }
    dcp_error why;
    int status = store_lock_take(store->dir_fd, store->dir, store->writer, store->options.take_over,
                                 &store->lock, &why);
    if (status == DCP_ERR_BUSY && store->nodes > 1)
        return core_fail_again(err, status, &why,
                               "%s; a private store needs a directory of its own a node",
                               why.message);
    if (status != DCP_OK) return core_fail_again(err, status, &why, "%s", why.message);
    if (!store_lock_excludes(store->lock))
        store_log(
            store, DCP_LOG_WARNING,
            "%s: its file system has no locks that exclude others: a second writer is noticed "
            "only at a save",
            store->dir);
    return DCP_OK;
}

/* Collective: one identity for all leaders, known to all ranks. */
static int make_writer(dcp_store *store, dcp_error *err) {
    int status = store->comm->rank == 0 ? store_writer_make_id(store->writer, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    if (status) return status;
    return comm_broadcast(store->comm, store->writer, sizeof store->writer, 0, err);
}

/* Collective: whether ranks must have temporary names of their own. */
static int agree_on_names(dcp_store *store, dcp_error *err) {
    uint64_t contested = store->lock && store_lock_is_contested(store->lock);
    int status = comm_allreduce(store->comm, &contested, 1, DCP_REDUCE_MAX, err);
    store->is_contested = contested != 0;
    return status;
}

static int read_redundancy(const dcp_store *store, const char *text, redundancy_spec *spec,
                           dcp_error *err) {
    int status = redundancy_parse(text, spec, err);
    if (status == DCP_OK && spec->kind != REDUNDANCY_NONE && !store->options.private_dirs)
        status = core_fail(err, DCP_ERR_ARG,
                           "redundancy \"%s\" is for private stores (private_dirs): a shared one "
                           "is not lost with a node",
                           text);
    return status;
}

/* What all ranks of a private store act upon together has to be the same on all of them. */
static int agree_on_options(dcp_store *store, const redundancy_spec *spec, dcp_error *err) {
    int is_private = store->options.private_dirs != 0;
    const plan_value values[] = {
        {"private_dirs", (uint64_t)is_private, 0},
        {"keep", is_private ? store->options.keep : 0, 0},
        {"replace", is_private && store->options.replace, 0},
        {"keep_latest", is_private && store->options.keep_latest, 0},
        {"redundancy", (uint64_t)spec->kind << 32 | (uint64_t)spec->lost, 1},
    };
    return plan_same(store->comm, values, sizeof values / sizeof *values, err);
}

static int open_store(dcp_store *store, const char *dir, const char *redundancy, dcp_error *err) {
    dcp_comm *comm = store->comm;
    redundancy_spec spec = {REDUNDANCY_NONE, 0};
    int status = read_redundancy(store, redundancy, &spec, err);
    if (status == DCP_OK) status = store_striped_check(store, err);
    status = comm_agree(comm, status, err);
    if (status == DCP_OK) status = agree_on_options(store, &spec, err);
    if (status == DCP_OK) status = comm_agree(comm, open_directory(store, dir, err), err);
    if (status == DCP_OK && store->options.private_dirs)
        status = find_nodes(comm, store->dir_fd, store->dir, &store->leader, &store->nodes, err);
    if (status == DCP_OK && store->options.private_dirs)
        status = store_domains_find(store, store->options.domain, err);
    if (status == DCP_OK && spec.kind != REDUNDANCY_NONE)
        status = redundancy_groups_collect(comm, &spec, store->domain, &store->groups, err);
    if (status == DCP_OK) status = make_writer(store, err);
    if (status == DCP_OK) status = comm_agree(comm, take_directory(store, err), err);
    if (status == DCP_OK) status = agree_on_names(store, err);
    if (status == DCP_OK && store_leads(store)) store_writer_folder_make(store);
    if (status == DCP_OK) status = store_leftovers_clear(store, err);
    if (status == DCP_OK) status = store_returned_settle(store, err);
    if (status == DCP_OK && !store->options.private_dirs)
        status = comm_broadcast(comm, store->dir, PATH_MAX, 0, err);
    if (status == DCP_OK) status = store_host_names_find(store, err);
    if (status == DCP_OK) store_striped_tell(store);
    return status;
}

int dcp_store_open(dcp_comm *comm, const char *dir, const dcp_store_options *options,
                   dcp_store **out, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: comm is NULL");
    dcp_store_options own;
    int status = core_sized_take(&own, sizeof own, options, "DCP_STORE_OPTIONS_INIT", err);
    dcp_store *store = make_store(comm, &own);
    if (!status && !store) status = core_fail_memory(err, PATH_MAX + sizeof *store);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_store_open: out is NULL");
    if (!status) status = core_path_check(NULL, dir, err);
    if (!status) status = core_option_check_text("dcp_store_options.tool", own.tool, err);
    if (!status) status = core_option_check_text("the domain", own.domain, err);
    status = comm_agree(comm, status, err);
    if (status == DCP_OK) status = open_store(store, dir, own.redundancy, err);
    if (status != DCP_OK) {
        dcp_store_close(store);
        return status;
    }
    *out = store;
    return DCP_OK;
}

/* What a forked process leaves to the one that opened the store. It has neither the threads of its
 * saves nor what they use of devices and of the kernel, so it leaves the attachment's memory. */
static void end_work(dcp_store *store) {
    store_settle(store);
    if (store->attachment) store->attachment->free(store->attachment);
    store_sweep(store);
    if (store->lock) store_writer_folder_drop(store);
}

void dcp_store_close(dcp_store *store) {
    if (!store) return;
    if (store_is_own(store)) end_work(store);
    store_lock_release(store->lock);
    if (store->dir_fd >= 0) close(store->dir_fd);
    redundancy_groups_free(store->groups);
    free((char *)store->options.tool);
    free((char *)store->options.domain);
    free(store->host_names);
    free(store->dir);
    store_pins_free(store->pins);
    free(store);
}

int dcp_store_check_free(const char *dir, dcp_error *err) {
    int fd;
    if (!dir) return core_fail(err, DCP_ERR_ARG, "dcp_store_check_free: dir is NULL");
    int status = core_path_check(NULL, dir, err);
    if (status == DCP_OK) status = store_directory_look(dir, &fd, err);
    if (status != DCP_OK || fd < 0) return status;
    status = store_lock_check_free(fd, dir, err);
    close(fd);
    return status;
}
