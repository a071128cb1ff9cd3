/* Gathering by messages. */
#pragma once

#include "fsdp/gather.h"

int fsdp_gather_by_messages(const fsdp_plan *plan, fsdp_transport *transport,
                            const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);
