/* Which losses a step survives, and how its lost files are written again. */
#pragma once

#include "redundancy/survey.h"

/* Which losses a step survives where its files are now. */

/* How many failure domains may be lost, whichever, before the step can't be rebuilt: the same on
 * all ranks, without communication. As many as it was saved for, unless files were rebuilt in
 * domains that hold others of their group. 0 where it can't even be rebuilt now. */
int redundancy_losses_survived(const redundancy_survey *survey);

/* Writing again what of a step is lost. */

/* Collective. Writes all that is lost, shards and redundancy files, byte by byte as they were
 * saved, durably, each under a temporary name until its checksum is proved.
 *
 *   survey  one of every byte. It knows afterwards where the rebuilt files are.
 *   folder  where this rank puts what it rebuilds; made where it is missing (its parent is not). A
 *           damaged file is replaced where it lies.
 *
 * Extra memory: 16 MiB a rank. The failures of redundancy_survey_check, before anything is written;
 * DCP_ERR_NO_SPACE, DCP_ERR_IO: files that were whole by then stay, and it may be tried again. */
int redundancy_reconstruct(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                           dcp_error *err);
