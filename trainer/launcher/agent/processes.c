#include "launcher/agent/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

/* /proc/PID/stat: "pid (name) state ppid ..."; the name may contain any character. */
typedef struct process_stat {
    char name[64], state;
    pid_t parent;
    unsigned long child_faults; /* page faults of children that were waited for */
    unsigned long long start;   /* time of start, in ticks */
    unsigned long memory;       /* bytes; 0: it has released its memory, and is ending */
} process_stat;

/* Reads up to size - 1 characters of /proc/PID/FILE; returns how many. */
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
    if (sscanf(
            after + 1,
            " %c %d %*d %*d %*d %*d %*u %*u %lu %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu %lu",
            &out->state, &parent, &out->child_faults, &out->start, &out->memory) != 5)
        return -1;
    out->parent = parent;
    return 0;
}

bool launcher_processes_are_visible(void) {
    char shown[16], own[16];
    const ssize_t n = readlink("/proc/self", shown, sizeof shown - 1);
    snprintf(own, sizeof own, "%d", (int)getpid());
    shown[n > 0 ? n : 0] = '\0';
    return strcmp(shown, own) == 0;
}

/* All processes, sorted by pid. */
typedef struct process_list {
    launcher_process *at;
    size_t n;
} process_list;

static int by_pid(const void *a, const void *b) {
    return ((const launcher_process *)a)->pid - ((const launcher_process *)b)->pid;
}

static process_list list_processes(void) {
    process_list list = {NULL, 0};
    size_t room = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return list;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        process_stat stat;
        const long pid = strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end != '\0' || read_process((pid_t)pid, &stat) != 0) continue;
        if (list.n == room) {
            void *more = realloc(list.at, (room = 2 * room + 64) * sizeof *list.at);
            if (!more) break;
            list.at = more;
        }
        list.at[list.n++] = (launcher_process){(pid_t)pid, stat.parent, stat.start};
    }
    closedir(dir);
    if (list.n) qsort(list.at, list.n, sizeof *list.at, by_pid);
    return list;
}

static bool is_below(const process_list *list, const launcher_process *process, pid_t parent,
                     pid_t but) {
    /* pids may have been reused while the list was made, so limit the walk to the list's length */
    for (size_t i = 0; process && i < list->n; i++) {
        if (process->pid == but) return false;
        if (process->parent == parent) return true;
        const launcher_process key = {.pid = process->parent};
        process = bsearch(&key, list->at, list->n, sizeof key, by_pid);
    }
    return false;
}

void launcher_processes_visit(pid_t parent, launcher_visit visit, void *ctx) {
    process_list list = list_processes();
    for (size_t i = 0; i < list.n; i++)
        if (list.at[i].parent == parent) visit(ctx, &list.at[i]);
    free(list.at);
}

void launcher_processes_visit_below(pid_t parent, pid_t but, launcher_visit visit, void *ctx) {
    process_list list = list_processes();
    for (size_t i = 0; i < list.n; i++)
        if (is_below(&list, &list.at[i], parent, but)) visit(ctx, &list.at[i]);
    free(list.at);
}

static void descend(const process_list *list, pid_t parent, int levels,
                    int (*enter)(void *ctx, const launcher_process *), void *ctx) {
    for (size_t i = 0; levels > 0 && i < list->n; i++)
        if (list->at[i].parent == parent && enter(ctx, &list->at[i]))
            descend(list, list->at[i].pid, levels - 1, enter, ctx);
}

void launcher_processes_descend(pid_t parent, int levels,
                                int (*enter)(void *ctx, const launcher_process *), void *ctx) {
    process_list list = list_processes();
    descend(&list, parent, levels, enter, ctx);
    free(list.at);
}

int launcher_processes_open(const launcher_process *process) {
    process_stat stat;
    const int fd = pidfd_open(process->pid, 0);
    if (fd >= 0 && read_process(process->pid, &stat) == 0 && stat.start == process->start)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

void launcher_processes_kill(void *ctx, const launcher_process *process) {
    (void)ctx;
    const int fd = launcher_processes_open(process);
    if (fd < 0) return;
    pidfd_send_signal(fd, SIGKILL, NULL, 0);
    close(fd);
}

/* Returns the value of the variable `name` in the environment at `path`, a file of /proc; NULL if
 * it has none. The caller frees the value. Sets *any if the environment is not empty. */
static char *find_variable(const char *path, const char *name, bool *any) {
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    const size_t length = strlen(name);
    char *entry = NULL, *value = NULL;
    size_t capacity = 0;
    while (!value && getdelim(&entry, &capacity, '\0', file) > 0) {
        *any = true;
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            value = strdup(entry + length + 1);
    }
    free(entry);
    fclose(file);
    return value;
}

char *launcher_processes_variable(pid_t pid, const char *name) {
    char path[sizeof(struct dirent) + 64];
    bool any = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    char *value = find_variable(path, name, &any);
    if (any) return value;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path); /* the first thread may have ended before the others */
    for (struct dirent *entry; threads && !any && (entry = readdir(threads));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/environ", (int)pid, entry->d_name);
        if (entry->d_name[0] != '.') value = find_variable(path, name, &any);
    }
    if (threads) closedir(threads);
    return value;
}

bool launcher_processes_handles_signal(pid_t pid, int signal) {
    static const char *const sets[] = {"SigBlk:", "SigIgn:", "SigCgt:"};
    char text[8192];
    read_proc(pid, "status", text, sizeof text);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const char *at = strstr(text, sets[i]);
        if (at && (strtoull(at + strlen(sets[i]), NULL, 16) >> (signal - 1) & 1)) return true;
    }
    return false;
}

pid_t launcher_processes_parent(pid_t pid) {
    process_stat stat;
    return read_process(pid, &stat) == 0 ? stat.parent : -1;
}

int launcher_processes_waited(pid_t pid) {
    process_stat stat;
    return read_process(pid, &stat) == 0 ? stat.child_faults > 0 : -1;
}

bool launcher_processes_is_ending(pid_t pid) {
    process_stat stat;
    return read_process(pid, &stat) == 0 && stat.memory == 0;
}

char *launcher_processes_describe(pid_t pid) {
    process_stat stat;
    char where[128], *text = NULL;
    if (read_process(pid, &stat) != 0 || stat.state == 'Z' || stat.state == 'X') return NULL;
    read_proc(pid, "wchan", where, sizeof where);
    const bool known = *where && strcmp(where, "0") != 0;
    if (asprintf(&text, "%d (%s), state %c%s%s", (int)pid, stat.name, stat.state,
                 known ? ", in " : "", known ? where : "") < 0)
        return NULL;
    return text;
}
