/* Opening a checkpoint. */
#pragma once

#include "step/checkpoint.h"

/* Collective: dcp_checkpoint_open_private for what asks for nothing but loads and the own files'
 * rows: no rank gets copies of all rows. */
int step_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out, dcp_error *err);
