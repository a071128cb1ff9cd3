/* A device's memory against what a run takes of it, which is all taken before the first step. */
#ifndef TRAINER_SETUP_ROOM_H
#define TRAINER_SETUP_ROOM_H

#include "step/trainer.h"

/* Collective, before anything is taken: DCP_ERR_NO_MEMORY on all ranks where a device lacks room
 * for what its ranks need together; the message has both. Nothing to do on the host. */
int room_check(const trainer *t, dcp_error *err);

/* `status`; where it is DCP_ERR_NO_MEMORY on a device, *err gets the rank's needs and what is free.
 */
int room_explain(const trainer *t, int status, dcp_error *err);

#endif
