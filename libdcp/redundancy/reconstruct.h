/* How many losses a step survives, and the rebuilding of its lost files. */
#pragma once

#include "redundancy/survey.h"

/* Returns the largest n such that the step can still be rebuilt after the loss of any n failure
 * domains, given where its files are now. Returns the same result on all ranks, without
 * communication. This is the number of losses that the step was saved to survive, unless files were
 * rebuilt in domains that have files of other members of the same group. Returns 0 if the step
 * can't even be rebuilt now. */
int redundancy_losses_survived(const redundancy_survey *survey);

/* Writes all lost shards and redundancy files again, with exactly the bytes that were saved. A
 * damaged copy of a file that another rank has intact is replaced as well; if a file has several
 * damaged copies, only the one that a load on these ranks would read. Each file has a temporary
 * name until its checksum is checked and the file is durable. Collective.
 *
 *   survey  must have read every byte; afterwards it contains the places of the rebuilt files
 *   folder  where this rank puts the files that it rebuilds. The folder is made if it is missing;
 *           its parent must exist. A damaged file is replaced where it is.
 *
 * Uses 16 MiB of extra memory per rank. Fails with the errors of redundancy_survey_check before it
 * writes anything. DCP_ERR_NO_SPACE, DCP_ERR_IO: files that were complete by then remain, and the
 * call can be repeated. */
int redundancy_reconstruct(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                           dcp_error *err);
