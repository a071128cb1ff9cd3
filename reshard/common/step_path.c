/* Finding a step's folder without opening it, so that also a damaged one is found. */
#include "common/step_path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/program.h"

int step_path_list(const char *dir, dcp_step **out, size_t *n) {
    dcp_error err = {0};
    dcp_step *steps;
    size_t all, complete = 0;
    if (dcp_steps_list(dir, &steps, &all, &err)) return program_report(&err);
    for (size_t i = 0; i < all; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE) steps[complete++] = steps[i];
    *out = steps;
    *n = complete;
    return 0;
}

/* The newest complete step and the one before it; empty where there is none. */
static int newest_complete(const char *dir, char name[64], char older[64]) {
    dcp_step *steps;
    size_t n;
    int status = step_path_list(dir, &steps, &n);
    if (status) return status;
    snprintf(name, 64, "%s", n > 0 ? steps[n - 1].name : "");
    snprintf(older, 64, "%s", n > 1 ? steps[n - 2].name : "");
    free(steps);
    return 0;
}

static int starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

int step_path_is_step(const char *folder) {
    char dir[PATH_MAX];
    if (!realpath(folder, dir)) return 0; /* there is none of the name, or opening tells */
    const char *name = strrchr(dir, '/') + 1;
    if (starts_with(name, "step-") || starts_with(name, ".tmp-step-") ||
        starts_with(name, ".abandoned-step-"))
        return 1;
    DIR *d = opendir(dir);
    int found = 0;
    errno = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        if (starts_with(e->d_name, "shard-") || strcmp(e->d_name, "state.h5") == 0) found = 1;
    const int code = errno;
    if (d) closedir(d);
    errno = code;
    return !found && (!d || code) ? -1 : found;
}

int step_path_find(const char *ckpt, char *step) {
    char dir[PATH_MAX], name[64], older[64];
    struct stat st;
    if (!realpath(ckpt, dir) || stat(dir, &st)) return program_fail_errno("cannot open", ckpt);
    if (!S_ISDIR(st.st_mode))
        return program_refuse("%s: not a folder; give the step's folder or the directory of steps",
                              ckpt);
    int status = newest_complete(dir, name, older);
    if (status) return status;
    const int is_step = name[0] ? 1 : step_path_is_step(dir);
    if (is_step < 0) return program_fail_errno("cannot look into", ckpt);
    if (!is_step) return program_refuse("%s: holds no complete step", ckpt);
    int given = (int)strlen(ckpt);
    while (given > 1 && ckpt[given - 1] == '/') given--;
    int length = snprintf(step, PATH_MAX, "%.*s%s%s", given, ckpt, name[0] ? "/" : "", name);
    return length < PATH_MAX ? 0 : program_refuse("%s: the path is too long", ckpt);
}

void step_path_note_older(const char *ckpt) {
    char dir[PATH_MAX], name[64], older[64];
    if (!realpath(ckpt, dir) || newest_complete(dir, name, older) || !older[0]) return;
    program_note(
        "%s was taken as the newest; %s is the complete step before it: give %s/%s to use that",
        name, older, ckpt, older);
}
