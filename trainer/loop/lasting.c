/* The file is one that dcp-run has in memory, under /proc: it has no name of its own. What else
 * DCP_RUN_REASON may name is left alone. */
#include "loop/lasting.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void lasting_tell(int rank, const char *why) {
    const char *path = getenv("DCP_RUN_REASON");
    static const char dcp_run[] = "/memfd:dcp-run";
    char target[64] = "";
    struct stat st;
    if (rank != 0 || !path) return;
    if (readlink(path, target, sizeof target - 1) < 0) return;
    if (strncmp(target, dcp_run, sizeof dcp_run - 1) != 0) return;
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    const int is_ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0;
    /* without it dcp-run goes by its number of restarts */
    if (is_ours && write(fd, why, strlen(why)) < 0) (void)ftruncate(fd, 0);
    close(fd);
}
