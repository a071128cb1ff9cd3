/* How many losses a step survives, and the rebuilding of its lost files. */
#pragma once

#include "redundancy/survey.h"

/* Returns how many failure domains may be lost, whichever they are, before the step can't be
 * rebuilt, given where its files are now. The same on all ranks, without communication. It is the
 * number that the step was saved for, unless files were rebuilt in domains that hold other members
 * of their group; 0 if the step can't even be rebuilt now. */
int redundancy_losses_survived(const redundancy_survey *survey);

/* Writes all lost shards and redundancy files again, byte by byte as they were saved, durably, each
 * under a temporary name until its checksum was checked. Collective.
 *
 *   survey  must have read every byte; afterwards it contains the places of the rebuilt files
 *   folder  where this rank puts the files that it rebuilds; made if it is missing, but not its
 *           parent. A damaged file is replaced in its place.
 *
 * Uses 16 MiB of extra memory per rank. Fails like redundancy_survey_check, before anything is
 * written. DCP_ERR_NO_SPACE, DCP_ERR_IO: files that were complete by then remain, and the call can
 * be repeated. */
int redundancy_reconstruct(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                           dcp_error *err);
