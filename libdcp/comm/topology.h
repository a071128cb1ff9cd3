/* Which ranks are near each other. */
#pragma once

#include "comm/rank_groups.h"
#include "dcp/comm.h"

/* Which ranks are on one host: those whose places are the same (comm/place.h), and which run on one
 * machine, though somebody gave a whole rack one name. Collective the first time, and again after
 * dcp_comm_set_host; kept with the communicator, to which *out belongs. */
int comm_hosts(dcp_comm *comm, const comm_groups **out, dcp_error *err);
