/* Which tensors a command is about: those that one of some globs matches. */
#pragma once

#include <stddef.h>

#include <dcp/checkpoint.h>

/* Whether a glob (fnmatch(3) without flags, so `*` is any text) matches the path, with or
 * without its first slash, or what follows "/model/" in it; no globs match all. matched[n], where
 * given, marks the globs that did. */
int inspect_filter_matches(char *const *globs, size_t n, const char *path, unsigned char *matched);

/* Marks in take[] the checkpoint's tensors that match. 0, or an exit status after a message:
 * PROGRAM_USAGE for a glob that matches none. */
int inspect_filter_tensors(const dcp_checkpoint *ckpt, char *const *globs, size_t n,
                           unsigned char *take);
