/* A CKPT argument: a step's folder, or a checkpoint directory, meaning its newest complete step. */
#ifndef RESHARD_LOCATE_H
#define RESHARD_LOCATE_H

/* The absolute path of the step's folder into step[PATH_MAX], or the status to exit with. The
 * folder may be damaged in any way. */
int locate_step(const char *ckpt, char *step);

#endif
