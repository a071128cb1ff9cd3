/* What was written to stdout is a result: losing it is a failure. */
#ifndef TRAINER_STDOUT_H
#define TRAINER_STDOUT_H

/* Closes stdout before `program` ends with `status`. Returns the status, or 3 after a message where
 * it is 0 and something could not be written. A reader that left has seen what it wanted. */
int stdout_end(const char *program, int status);

#endif
