/* A CKPT argument: a step's folder, or a checkpoint directory, meaning its newest complete step. */
#pragma once

#include <stddef.h>

#include <dcp/store.h>

/* The complete steps of a directory, ascending; *out is the caller's to free. 0, or an exit status
 * after a message. */
int step_path_list(const char *dir, dcp_step **out, size_t *n);

/* The path of the step's folder, which is `ckpt` or lies in it, into step[PATH_MAX]. 0, or the
 * status to exit with. The folder may be damaged in any way. */
int step_path_find(const char *ckpt, char *step);

/* Whether a folder is a step's, by its name or by what is in it; -1 with errno: it could not be
 * looked into. */
int step_path_is_step(const char *folder);

/* For a failure of the newest step: says on stderr which complete step of the checkpoint directory
 * `ckpt` comes before it. Says nothing where `ckpt` is a step itself or holds no other one. */
void step_path_note_older(const char *ckpt);
