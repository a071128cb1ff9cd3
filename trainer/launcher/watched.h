/* Directories in which a run publishes steps. */
#pragma once

#include <stddef.h>

typedef struct launcher_watched {
    char **at; /* [0]: checkpoint.dir, where one is known; then the stores */
    size_t n;
} launcher_watched;

/* --watch's directory, or those that `dcp-train CONFIG.json [key.path=value ...]` would use; none
 * where `program` is another one, or the file is none that dcp-train would take. */
void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program);
/* Whether it is dcp-train, which tells dcp-run how far it is. */
int launcher_watched_is_train(const char *program);
void launcher_watched_free(launcher_watched *dirs);
