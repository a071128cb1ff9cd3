/* Damages files of a checkpoint and repairs them, and checks what a verification then reports. */
#ifndef TESTS_DAMAGE_H
#define TESTS_DAMAGE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcp/checkpoint.h"

typedef struct victim {
    char path[512];
    unsigned char *bytes; /* the original contents */
    size_t n;
    int fd;
} victim;

static inline int victim_open(victim *v, const char *dir, const char *name) {
    snprintf(v->path, sizeof v->path, "%s/%s", dir, name);
    v->fd = open(v->path, O_RDWR);
    off_t end = v->fd < 0 ? -1 : lseek(v->fd, 0, SEEK_END);
    if (end < 0 || !(v->bytes = malloc((size_t)end + 1))) return -1;
    v->n = (size_t)end;
    return pread(v->fd, v->bytes, v->n, 0) == (ssize_t)v->n ? 0 : -1;
}

static inline void victim_close(victim *v) {
    close(v->fd);
    free(v->bytes);
}

static inline int victim_put(const victim *v, size_t at, unsigned char byte) {
    return pwrite(v->fd, &byte, 1, (off_t)at) == 1 ? 0 : -1;
}

static inline int victim_flip(const victim *v, size_t at, int bit) {
    return victim_put(v, at, (unsigned char)(v->bytes[at] ^ 1 << bit));
}

static inline int victim_mend(const victim *v, size_t at) {
    return victim_put(v, at, v->bytes[at]);
}

/* Restores the original file. */
static inline int victim_restore(const victim *v) {
    if (ftruncate(v->fd, (off_t)v->n)) return -1;
    return pwrite(v->fd, v->bytes, v->n, 0) == (ssize_t)v->n ? 0 : -1;
}

/* The first position of `needle`; n if there is none. */
static inline size_t victim_find(const victim *v, const void *needle, size_t bytes) {
    const unsigned char *at = memmem(v->bytes, v->n, needle, bytes);
    return at ? (size_t)(at - v->bytes) : v->n;
}

typedef struct findings {
    size_t n;
    char text[8192]; /* the lines that were reported */
} findings;

static inline void findings_add(void *ctx, const char *what) {
    findings *f = ctx;
    size_t used = strlen(f->text);
    f->n++;
    snprintf(f->text + used, sizeof f->text - used, "%s\n", what);
}

static inline int findings_of(const char *step, findings *f) {
    dcp_verify_options options = {.size = sizeof options, .on_damage = findings_add, .ctx = f};
    memset(f, 0, sizeof *f);
    return dcp_verify(step, &options, NULL);
}

static inline void remove_folder_tree(const char *dir) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command)) perror(command);
}

#endif
