/* One state, one file, whatever moves the bytes: io_uring, threads if the kernel refuses io_uring,
 * the page cache if the file system refuses O_DIRECT (tmpfs), HDF5 through MPI-IO; in both layouts;
 * and each way loads what each wrote. */
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "support/scratch.h"

static const char *const layout_names[] = {"global", "sharded"};

static void save(const scratch *s, const char *root, const char *way, const given *g, scheme how,
                 dcp_layout layout, dcp_engine engine) {
    char dir[PATH_MAX];
    held h;
    dcp_report report = DCP_REPORT_INIT;
    dcp_store *store = NULL;
    dcp_store_options replace = {.size = sizeof replace, .replace = 1};
    dcp_save_options options = {.size = sizeof options, .layout = layout, .engine = engine};
    snprintf(dir, sizeof dir, "%s/%s-%s", root, way, layout_names[layout]);
    SUCCEEDS(dcp_store_open(s->comm, dir, &replace, &store, err));
    held_make(&h, g, how, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, 5, h.state, GIVEN_JSON, &options, &report, err));
    CHECK(report.engine == engine);
    SUCCEEDS(dcp_save(store, 5, h.state, GIVEN_JSON, &options, &report, err)); /* same plan */
    held_free(&h);
    dcp_store_close(store);
}

/* Checks that the files of `root`/way are those of io_uring's way. */
static void check_same(const scratch *s, const char *root, const char *way, dcp_layout layout) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < (layout ? s->size : 1) && s->rank == 0; k++) {
        char name[64] = "state.h5", command[3 * PATH_MAX];
        if (layout) snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", k, s->size);
        snprintf(command, sizeof command,
                 "cmp %s/ring-%s/step-00000005/%s %s/%s-%s/step-00000005/%s", s->root,
                 layout_names[layout], name, root, way, layout_names[layout], name);
        if (system(command)) check_failed(__FILE__, __LINE__, command);
    }
}

static void load(const scratch *s, const char *root, const char *way, const given *g,
                 dcp_layout layout, dcp_engine engine) {
    static const scheme schemes[] = {COLUMNS, PAIRS, STRIPES, HALO, ONE_OF_TWO};
    for (size_t i = 0; i < (engine == DCP_ENGINE_MPIO ? 5 : 1); i++) {
        scheme how = schemes[i];
        char dir[PATH_MAX];
        held h;
        dcp_report report = DCP_REPORT_INIT;
        dcp_checkpoint *ckpt = NULL;
        dcp_load_options options = {.size = sizeof options, .engine = engine};
        snprintf(dir, sizeof dir, "%s/%s-%s", root, way, layout_names[layout]);
        SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
        held_make(&h, g, how, s->rank, s->size, 0);
        SUCCEEDS(dcp_load_with(ckpt, h.state, &options, &report, err));
        CHECK(report.engine == engine);
        if (!held_is_given(&h, g)) check_failed(__FILE__, __LINE__, scheme_names[how]);
        held_free(&h);
        dcp_checkpoint_close(ckpt);
    }
}

/* Makes io_uring unavailable in this process. */
static int refuse_io_uring(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A folder on a tmpfs; 0 if the machine has none. */
static int memory_root(const scratch *s, char *root, size_t bytes) {
    struct statfs fs;
    if (statfs("/dev/shm", &fs) || fs.f_type != TMPFS_MAGIC) return 0;
    snprintf(root, bytes, "/dev/shm/dcp-mpi-XXXXXX");
    if (s->rank == 0) CHECK(mkdtemp(root));
    MPI_Bcast(root, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return 1;
}

int main(int argc, char **argv) {
    static const scheme schemes[] = {ROWS, COPIES, STRIPES, COLUMNS, BLOCKS};
    scratch s;
    given g;
    char memory[64];
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    int in_memory = memory_root(&s, memory, sizeof memory);
    for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
            save(&s, s.root, "ring", &g, schemes[i], layout, DCP_ENGINE_DIRECT);
            save(&s, s.root, "mpio", &g, schemes[i], layout, DCP_ENGINE_MPIO);
            check_same(&s, s.root, "mpio", layout);
        }
        load(&s, s.root, "ring", &g, layout, DCP_ENGINE_MPIO);
        load(&s, s.root, "mpio", &g, layout, DCP_ENGINE_DIRECT);
        if (!in_memory) continue;
        save(&s, memory, "memory", &g, BLOCKS, layout, DCP_ENGINE_DIRECT);
        check_same(&s, memory, "memory", layout);
        load(&s, memory, "memory", &g, layout, DCP_ENGINE_DIRECT);
        save(&s, memory, "memory", &g, BLOCKS, layout, DCP_ENGINE_MPIO);
        check_same(&s, memory, "memory", layout);
    }
    if (in_memory && s.rank == 0) CHECK(store_directory_remove(AT_FDCWD, memory) == 0);
    int refused = refuse_io_uring();
    MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int layout = 0; layout < 2 && refused; layout++) {
        save(&s, s.root, "threads", &g, BLOCKS, (dcp_layout)layout, DCP_ENGINE_DIRECT);
        check_same(&s, s.root, "threads", (dcp_layout)layout);
        load(&s, s.root, "mpio", &g, (dcp_layout)layout, DCP_ENGINE_DIRECT);
    }
    given_free(&g);
    return scratch_end(&s);
}
