/* Failures that a restart would only repeat. */
#ifndef TRAINER_LOOP_LASTING_H
#define TRAINER_LOOP_LASTING_H

/* Tells dcp-run, where it started this run, why the run is about to end: in words that are the same
 * each time. Nothing on other ranks than 0. */
void lasting_tell(int rank, const char *why);

#endif
