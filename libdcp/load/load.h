/* The whole load, by whichever thread. */
#pragma once

#include "dcp/checkpoint.h"

struct load_job;

/* Collective, with ckpt, comm, options and progress set in the job, which else is zeroed: up to
 * where all ranks know what is to be read. `state` is borrowed until load_end; of the options
 * nothing but what is copied into the job is used any more. */
int load_plan(struct load_job *l, const dcp_state *state, dcp_error *err);

/* Collective, in the place of load_plan of a load in flight on a rank that has `status`. */
int load_refuse(dcp_comm *comm, int status, const dcp_load_options *options, dcp_error *err);

/* Collective, after load_plan, over l->comm, which may be another communicator of the same ranks by
 * now. In any thread, save by engines that are not for any. */
int load_run(struct load_job *l, dcp_error *err);

/* Frees what the job has, also after a failure. */
void load_end(struct load_job *l);
