#include "io/buffers.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Opens the file `name` of a folder. Returns NULL if it does not exist. */
static FILE *open_in(const char *folder, const char *name) {
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* Reads the number that follows `key` at the beginning of a line of the file. With the key "",
 * reads the number at the beginning of the first line that has one. Returns false if there is none,
 * for example if the file says "max". */
static bool read_number(const char *folder, const char *name, const char *key, uint64_t *out) {
    char line[256];
    const size_t length = strlen(key);
    bool found = false;
    FILE *file = open_in(folder, name);
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file)) {
        char *end;
        if (strncmp(line, key, length) != 0) continue;
        *out = strtoull(line + length, &end, 10);
        found = end != line + length;
    }
    fclose(file);
    return found;
}

/* The files of a control group, which depend on the version. */
typedef struct group_files {
    const char *below; /* the place of the groups, relative to /sys/fs/cgroup */
    const char *limits[2], *usage, *cache;
} group_files;

static const group_files version_1 = {
    "/memory", {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_inactive_file "};
static const group_files version_2 = {
    "", {"memory.max", "memory.high"}, "memory.current", "inactive_file "};

/* Returns the memory that is left to the folder's group; UINT64_MAX: the group has no limit. */
static uint64_t left_to_group(const char *folder, const group_files *names) {
    uint64_t least = UINT64_MAX, limit, used, cache = 0;
    for (int i = 0; i < 2 && names->limits[i]; i++)
        if (read_number(folder, names->limits[i], "", &limit) && limit < least) least = limit;
    if (least == UINT64_MAX || !read_number(folder, names->usage, "", &used)) return UINT64_MAX;
    if (!read_number(folder, "memory.stat", names->cache, &cache)) cache = 0;
    used = used > cache ? used - cache : 0;
    return least > used ? least - used : 0;
}

/* Returns the least memory that is left to a group or to any group that contains it. In a container
 * the beginning of the path may not exist; then the process's group may be the topmost one that is
 * visible. */
static uint64_t left_to_groups(const char *cgroups, char *group, const group_files *names) {
    char folder[PATH_MAX];
    uint64_t least = UINT64_MAX;
    group[strcspn(group, "\n")] = 0;
    for (;;) {
        const int length = snprintf(folder, sizeof folder, "%s%s%s", cgroups, names->below, group);
        const uint64_t left =
            length < (int)sizeof folder ? left_to_group(folder, names) : UINT64_MAX;
        if (left < least) least = left;
        char *last = strrchr(group, '/');
        if (!last) return least;
        *last = 0;
    }
}

/* A line has the form number:controllers:path; version 2 lists no controllers. */
static uint64_t left_in_line(const char *cgroups, char *line) {
    char *controllers = strchr(line, ':'), *group;
    if (!controllers || !(group = strchr(++controllers, ':'))) return UINT64_MAX;
    *group++ = 0;
    if (!*controllers) return left_to_groups(cgroups, group, &version_2);
    for (char *rest, *one = strtok_r(controllers, ",", &rest); one;
         one = strtok_r(NULL, ",", &rest))
        if (strcmp(one, "memory") == 0) return left_to_groups(cgroups, group, &version_1);
    return UINT64_MAX;
}

uint64_t io_available_memory_in(const char *proc, const char *cgroups) {
    char line[PATH_MAX];
    uint64_t least = UINT64_MAX, kib;
    if (read_number(proc, "meminfo", "MemAvailable:", &kib)) least = kib << 10;
    FILE *file = open_in(proc, "self/cgroup");
    while (file && fgets(line, sizeof line, file)) {
        const uint64_t left = left_in_line(cgroups, line);
        if (left < least) least = left;
    }
    if (file) fclose(file);
    return least;
}

static uint64_t left_of_limit(int resource, uint64_t pages) {
    struct rlimit limit;
    const uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrlimit((__rlimit_resource_t)resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t io_available_memory(void) {
    uint64_t least = io_available_memory_in("/proc", "/sys/fs/cgroup"), left;
    unsigned long long all = 0, data = 0; /* in pages */
    FILE *file = open_in("/proc/self", "statm");
    const bool known = file && fscanf(file, "%llu %*u %*u %*u %*u %llu", &all, &data) == 2;
    if (file) fclose(file);
    if (!known) return least;
    if ((left = left_of_limit(RLIMIT_AS, all)) < least) least = left;
    if ((left = left_of_limit(RLIMIT_DATA, data)) < least) least = left;
    return least;
}

#define HUGE_PAGE ((size_t)2 << 20)

/* Maps a huge page more than requested, and unmaps what lies before and after the aligned
 * memory. */
void *io_buffers_create(size_t bytes) {
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    unsigned char *taken =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)taken % HUGE_PAGE) % HUGE_PAGE;
    unsigned char *memory = taken + before;
    if (before) munmap(taken, before);
    munmap(memory + bytes, HUGE_PAGE - before);
    madvise(memory, bytes, MADV_HUGEPAGE); /* may fail */
    return memory;
}

void io_buffers_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}
