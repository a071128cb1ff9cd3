/* The names of steps' folders, and the steps of a directory. */
#pragma once

#include "dcp/store.h"

/* 1 where the folder is named as a step is, whatever state it is in, with the step of that name. */
int step_name_read(const char *path, uint64_t *step);

/* dcp_steps_list of an open directory, wherever that is by now; `dir` names it in messages. */
int step_list_at(int dir_fd, const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* One more than the newest complete step below `limit`, of steps in ascending order; 0: none. */
uint64_t step_list_newest_below(const dcp_step *steps, size_t n, uint64_t limit);

/* Collective: the same in *next, of the steps that any rank has. */
int step_list_newest_of_ranks(dcp_comm *comm, const dcp_step *steps, size_t n, uint64_t limit,
                              uint64_t *next, dcp_error *err);

/* What the message that there is no step ends with: where some were set aside in `dir`, by a run
 * that went back and has saved nothing since, the newest of them and how it is taken; else "". */
void step_list_tell_set_aside(const char *dir, char *text, size_t size);

/* "step-00000120" with the given prefix ("", ".tmp-", ".abandoned-") into name[64]. */
void step_name_write(char *name, const char *prefix, uint64_t step);

/* "dir/step-00000120", with such a prefix, into path[PATH_MAX]. DCP_ERR_ARG: it is too long. */
int step_name_path(const char *dir, const char *prefix, uint64_t step, char *path, dcp_error *err);

/* The path of the newest complete step's folder in dir, or DCP_ERR_NOT_FOUND. */
int step_list_newest(const char *dir, char *path /* PATH_MAX */, uint64_t *step, dcp_error *err);
