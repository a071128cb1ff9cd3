/* Positioned writes of whole pages, each page by one rank and synced by its writer, are right on
 * local file systems and on all network and parallel ones whose clients keep no page that another
 * node wrote, or drop it in time: ext4, xfs, btrfs, tmpfs, overlayfs, NFS, Lustre, GPFS, CephFS. So
 * this lists only those where they are not. */
#include "io/engine.h"

#include <string.h>
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

static const char *const names[] = {"auto", "direct", "mpio"};
#define NAMES (sizeof names / sizeof *names)

const char *dcp_engine_name(dcp_engine engine) {
    return (unsigned)engine < NAMES ? names[engine] : NULL;
}

int dcp_engine_parse(const char *name, dcp_engine *out) {
    for (unsigned i = 0; i < NAMES; i++)
        if (name && strcmp(name, names[i]) == 0) {
            *out = (dcp_engine)i;
            return DCP_OK;
        }
    return DCP_ERR_NOT_FOUND;
}
