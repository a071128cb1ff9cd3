/* Positioned writes of whole pages, each page by one rank and synced by its writer, are right on
 * local file systems and on all network and parallel ones whose clients keep no page that another
 * node wrote, or drop it in time: ext4, xfs, btrfs, tmpfs, overlayfs, NFS, Lustre, GPFS, CephFS. So
 * this lists only those where they are not. */
#include "io/engine.h"

#include <sys/vfs.h>

typedef struct exception {
    uint64_t type;
    dcp_engine engine;
} exception;

static const exception exceptions[] = {
    /* PVFS2 and OrangeFS have no POSIX semantics between clients by design: no locks, and caches
     * that other nodes' writes don't reach. They are made for MPI-IO. */
    {0x20030528, DCP_ENGINE_MPIO},
};

dcp_engine io_engine_of_type(uint64_t type) {
    for (unsigned i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (exceptions[i].type == type) return exceptions[i].engine;
    return DCP_ENGINE_DIRECT;
}

dcp_engine io_engine_for(const char *path) {
    struct statfs fs;
    return statfs(path, &fs) ? DCP_ENGINE_DIRECT : io_engine_of_type((uint64_t)fs.f_type);
}

const char *dcp_engine_name(dcp_engine engine) {
    static const char *const names[] = {"auto", "direct", "mpio"};
    return (unsigned)engine < sizeof names / sizeof *names ? names[engine] : NULL;
}
