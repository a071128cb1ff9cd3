/* Paths of private stores name the rank or the host, where ranks share a file system but not its
 * directory. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fail.h"
#include "tiers/tiers.h"

/* What stands for the braces at `at`; their length, 0 where they are none that we know. */
static size_t stand_in(const char *at, int rank, char *out, size_t size) {
    if (strncmp(at, "{rank}", 6) == 0) {
        snprintf(out, size, "%d", rank);
        return 6;
    }
    if (strncmp(at, "{host}", 6) == 0 && gethostname(out, size - 1) == 0) {
        out[size - 1] = '\0';
        return 6;
    }
    return 0;
}

int tiers_path(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    char path[PATH_MAX] = "", word[256];
    size_t length = 0;
    if (!given->path) return core_fail(err, DCP_ERR_ARG, "a store needs a path");
    if (!given->is_private && strchr(given->path, '{'))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: only a private store's path is another one on each rank",
                         given->path);
    for (const char *at = given->path; *at;) {
        size_t taken = 1;
        word[0] = *at, word[1] = '\0';
        if (*at == '{' && !(taken = stand_in(at, rank, word, sizeof word)))
            return core_fail(err, DCP_ERR_ARG, "%s: braces hold {rank} or {host}", given->path);
        if (length + strlen(word) >= sizeof path)
            return core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", given->path);
        length += (size_t)sprintf(path + length, "%s", word);
        at += taken;
    }
    *out = strdup(path);
    return *out ? DCP_OK : core_fail_memory(err, length);
}
