/* Calls every function that the library exports with NULL in place of its object, each in a process
 * of its own: none ends the process. First all arguments are 0; then all except the first are the
 * address of a page of zeros, which is an empty struct, an empty text, a large number. The
 * functions are those of libdcp.map. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcp/dcp.h"

enum { PAGE = 1 << 16, LIMIT_S = 60 };

/* Integers and addresses, as the calling conventions of Linux pass them; superfluous ones are
 * ignored. */
typedef uintptr_t (*any_function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                                  uintptr_t, uintptr_t);

/* These return a struct, through an address that is passed first. */
static int returns_box(const char *name) {
    return !strcmp(name, "dcp_box_whole") || !strcmp(name, "dcp_box_chunk");
}

/* Its second argument is an object, too. */
static int works_on_two(const char *name) { return !strcmp(name, "dcp_rewrite"); }

static void call(const char *name, uintptr_t rest) {
    dcp_box box;
    any_function f;
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol) _exit(2);
    memcpy(&f, &symbol, sizeof f);
    if (returns_box(name))
        box = strcmp(name, "dcp_box_whole") ? dcp_box_chunk(NULL, 0, 1) : dcp_box_whole(NULL);
    else
        f(0, rest, rest, rest, rest, rest, rest, rest);
    _exit(returns_box(name) && dcp_box_elems(&box, 1) != 0);
}

/* Returns true if the process that calls the function ends normally. */
static int survives(const char *name, uintptr_t rest) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(LIMIT_S);
        call(name, rest);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 0;
    if (status == 0) return 1;
    printf("%s(NULL, %s ...): %s %d\n", name, rest ? "zeros" : "0",
           WIFSIGNALED(status) ? "signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 0;
}

/* The next name that is alone in its line and ends in ';'; "" at the end. */
static void next_name(FILE *map, char name[128]) {
    char line[256];
    while (fgets(line, sizeof line, map))
        if (sscanf(line, " dcp_%120[a-z0-9_];", name + 4) == 1) {
            memcpy(name, "dcp_", 4);
            return;
        }
    name[0] = '\0';
}

int main(void) {
    char path[4096];
    const char *source = getenv("DCP_SOURCE");
    if (!source) return 77;
    snprintf(path, sizeof path, "%s/libdcp/libdcp.map", source);
    FILE *map = fopen(path, "r");
    char *zeros = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char name[128];
    int n = 0, bad = 0;
    if (!map || zeros == MAP_FAILED) return 1;
    for (next_name(map, name); name[0]; next_name(map, name), n++)
        bad += !survives(name, 0) + (!works_on_two(name) && !survives(name, (uintptr_t)zeros));
    fclose(map);
    printf("%d functions, %d calls that did not return\n", n, bad);
    return n < 100 || bad;
}
