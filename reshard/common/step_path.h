/* A CKPT argument: a step's folder, or a checkpoint directory, meaning its newest complete step. */
#ifndef RESHARD_STEP_PATH_H
#define RESHARD_STEP_PATH_H

/* The path of the step's folder, as it was given or below that, into step[PATH_MAX], or the status
 * to exit with. The folder may be damaged in any way. */
int step_path_find(const char *ckpt, char *step);

/* Whether a folder is a step's, by its name or by what is in it. */
int step_path_is_step(const char *folder);

/* Says on stderr which complete step of the checkpoint directory `ckpt` stands before its newest
 * one, for a failure of the newest; nothing where `ckpt` is a step itself or holds no other. */
void step_path_note_older(const char *ckpt);

#endif
