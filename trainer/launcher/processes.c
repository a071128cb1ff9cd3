#include "launcher/processes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* /proc/PID/stat: "pid (name) state ppid ..."; the name may hold anything. */
typedef struct process_stat {
    char name[64], state;
    pid_t parent;
    unsigned long child_faults; /* of children that were waited for */
    unsigned long memory;       /* bytes; 0: it has let go of it, and ends */
} process_stat;

/* Up to size - 1 characters of /proc/PID/FILE; how many. */
static size_t read_proc(pid_t pid, const char *file, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *stream = fopen(path, "re");
    const size_t n = stream ? fread(text, 1, size - 1, stream) : 0;
    if (stream) fclose(stream);
    text[n] = '\0';
    return n;
}

static int read_process(pid_t pid, process_stat *out) {
    char line[512];
    read_proc(pid, "stat", line, sizeof line);
    char *name = strchr(line, '('), *after = strrchr(line, ')');
    int parent;
    if (!name || !after) return -1;
    *after = '\0';
    snprintf(out->name, sizeof out->name, "%s", name + 1);
    if (sscanf(after + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %lu %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %lu",
               &out->state, &parent, &out->child_faults, &out->memory) != 4)
        return -1;
    out->parent = parent;
    return 0;
}

void launcher_processes_visit(pid_t parent, void (*visit)(void *ctx, pid_t child), void *ctx) {
    DIR *dir = opendir("/proc");
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        process_stat stat;
        const long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0' && read_process((pid_t)pid, &stat) == 0 &&
            stat.parent == parent)
            visit(ctx, (pid_t)pid);
    }
    closedir(dir);
}

char *launcher_processes_variable(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    const size_t length = strlen(name);
    char *entry = NULL, *value = NULL;
    size_t capacity = 0;
    while (!value && getdelim(&entry, &capacity, '\0', file) > 0)
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            value = strdup(entry + length + 1);
    free(entry);
    fclose(file);
    return value;
}

int launcher_processes_waited(pid_t pid) {
    process_stat stat;
    return read_process(pid, &stat) == 0 ? stat.child_faults > 0 : -1;
}

int launcher_processes_is_ending(pid_t pid) {
    process_stat stat;
    return read_process(pid, &stat) == 0 && stat.memory == 0 && stat.state != 'Z';
}

char *launcher_processes_describe(pid_t pid) {
    process_stat stat;
    char where[128], *text = NULL;
    if (read_process(pid, &stat) != 0 || stat.state == 'Z' || stat.state == 'X') return NULL;
    read_proc(pid, "wchan", where, sizeof where);
    const int known = *where && strcmp(where, "0") != 0;
    if (asprintf(&text, "%d (%s), state %c%s%s", (int)pid, stat.name, stat.state,
                 known ? ", in " : "", known ? where : "") < 0)
        return NULL;
    return text;
}
