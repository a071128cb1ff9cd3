/* A group's tear-down for cmocka, where its set-up made a folder, went there and left its name in
 * *state. */
#ifndef TESTS_DATA_FOLDER_H
#define TESTS_DATA_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline int remove_folder(void **state) {
    char command[64];
    snprintf(command, sizeof command, "rm -r '%s'", (char *)*state);
    free(*state);
    return chdir("..") != 0 || system(command) != 0;
}

#endif
