/* Directories in which a run publishes steps. */
#pragma once

#include <stddef.h>

typedef struct launcher_watched {
    char **at; /* [0]: checkpoint.dir, where one is known; then the stores */
    size_t n;
    int has_redundancy; /* a store's parts are on several hosts, so that one may be lost */
} launcher_watched;

/* --watch's directory, or those that `dcp-train CONFIG.json [key.path=value ...]` would use, also
 * after words of a program that starts it, as env and numactl are; none where there is no such
 * word, or the file is none that dcp-train would take. */
void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program);
/* Whether it is dcp-train, which tells dcp-run how far it is. */
int launcher_watched_is_train(const char *program);
/* The first of the words that is; NULL: none. */
char *const *launcher_watched_find_train(char *const *program);
void launcher_watched_free(launcher_watched *dirs);
