#include "setup/machine_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t smaller_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* "max" is no limit, and so is a file that is not there, as that of the topmost group. */
static uint64_t read_limit(const char *folder, const char *group, const char *name) {
    char path[PATH_MAX];
    uint64_t bytes = UINT64_MAX;
    FILE *file = NULL;
    const int length = snprintf(path, sizeof path, "%s%s/%s", folder, group, name);
    if (length > 0 && (size_t)length < sizeof path) file = fopen(path, "re");
    if (!file) return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &bytes) != 1) bytes = UINT64_MAX;
    fclose(file);
    return bytes;
}

/* A group has no more than the groups that it is in. Inside a container the topmost one is its own,
 * whatever the group is called outside. */
static uint64_t find_limit(const char *folder, char *group, const char *name) {
    uint64_t bytes = read_limit(folder, group, name);
    for (char *end = strrchr(group, '/'); end; end = strrchr(group, '/')) {
        *end = '\0';
        bytes = smaller_of(bytes, read_limit(folder, group, name));
    }
    return bytes;
}

/* Lines of "NUMBER:CONTROLLERS:GROUP"; version 2 names no controllers. */
static uint64_t find_limit_of_groups(void) {
    char line[PATH_MAX + 256];
    uint64_t bytes = UINT64_MAX;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups)) {
        char *controllers = strchr(line, ':'), *group = controllers;
        if (controllers) group = strchr(++controllers, ':');
        if (!group) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!*controllers)
            bytes = smaller_of(bytes, find_limit("/sys/fs/cgroup", group, "memory.max"));
        else if (strcmp(controllers, "memory") == 0)
            bytes = smaller_of(bytes,
                               find_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
    if (groups) fclose(groups);
    return bytes;
}

setup_machine_memory setup_machine_memory_find(void) {
    struct rlimit limit;
    const uint64_t of_group = find_limit_of_groups();
    setup_machine_memory found = {.all = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                                         (uint64_t)sysconf(_SC_PAGESIZE),
                                  .of_process = UINT64_MAX};
    found.is_of_group = of_group < found.all;
    found.all = smaller_of(found.all, of_group);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        found.of_process = limit.rlim_cur;
    return found;
}
