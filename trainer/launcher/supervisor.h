/* The starts of a run, one after the other. One job exists at a time: the next starts only when
 * launcher_job_clear has proven that nothing of the last one is left. */
#pragma once

#include "launcher/run.h"

/* Until the run is done, or another start has no use: the exit status. */
int launcher_supervise(launcher_run *run);
