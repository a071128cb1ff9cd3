/* Which tensors a command is about: those that one of some globs matches. */
#ifndef RESHARD_CHOOSE_H
#define RESHARD_CHOOSE_H

#include <stddef.h>

/* Whether a glob (fnmatch(3) without flags, so `*` is any text) matches the path, with or
 * without its first slash, or what follows "/model/" in it; no globs match all. matched[n], where
 * given, marks the globs that did. */
int choose_matches(char *const *globs, size_t n, const char *path, unsigned char *matched);

#endif
