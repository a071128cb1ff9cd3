/* A folder in /tmp: the set-up and tear-down of a cmocka group. */
#ifndef TESTS_FOLDER_FIXTURE_H
#define TESTS_FOLDER_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/dcp-unit-XXXXXX";

/* A path in the folder; the next call overwrites it. */
static inline const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
