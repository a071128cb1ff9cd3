/* Which losses a step survives where its files are now. */
#pragma once

#include "redundancy/survey.h"

/* How many failure domains may be lost, whichever, before the step can't be rebuilt: the same on
 * all ranks, without communication. As many as it was saved for, unless files were rebuilt in
 * domains that hold others of their group. 0 where it can't even be rebuilt now. */
int redundancy_losses_survived(const redundancy_survey *survey);
