/* /proc, read with plain calls. Processes come and go meanwhile: what vanishes is skipped. */
#include "launcher/procs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parent in /proc/PID/stat: "pid (name) state ppid ..."; the name may hold anything. */
static pid_t parent_of(const char *pid) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    const size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    const char *after_name = strrchr(line, ')');
    int parent;
    if (!after_name || sscanf(after_name + 1, " %*c %d", &parent) != 1) return -1;
    return parent;
}

int procs_children(pid_t parent, void (*visit)(void *ctx, pid_t child), void *ctx) {
    DIR *dir = opendir("/proc");
    if (!dir) return -1;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        const long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0' && parent_of(entry->d_name) == parent) visit(ctx, (pid_t)pid);
    }
    closedir(dir);
    return 0;
}

int procs_mpi_rank(pid_t pid) {
    static const char key[] = "OMPI_COMM_WORLD_RANK=";
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char *entry = NULL;
    size_t capacity = 0;
    int rank = -1;
    while (rank < 0 && getdelim(&entry, &capacity, '\0', file) > 0)
        if (strncmp(entry, key, sizeof key - 1) == 0) rank = atoi(entry + sizeof key - 1);
    free(entry);
    fclose(file);
    return rank;
}
