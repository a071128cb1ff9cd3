/* Choosing an engine. */
#include "io/engine.h"
#include "core/fail.h"
#include "core/state.h"
#include "h5/parallel.h"
#include "plan/plan.h"

int plan_check_engine(dcp_engine wanted, dcp_error *err) {
    if (!dcp_engine_name(wanted))
        return core_fail(err, DCP_ERR_ARG, "engine %d does not exist", (int)wanted);
    return wanted == DCP_ENGINE_MPIO ? h5_parallel_check(err) : DCP_OK;
}

int dcp_device_check_files(const dcp_device *device, dcp_error *err) {
    if (!device) return core_fail(err, DCP_ERR_ARG, "a device is needed");
    if (!device->files)
        return core_fail(
            err, DCP_ERR_UNSUPPORTED,
            "engine cufile: %s does not read and write files itself (a GPU does where libdcp was "
            "built with the CUDA toolkit's cuFile): take engine auto",
            device->name);
    int code = device->files->ready(device->ctx);
    if (!code) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "engine cufile: %s cannot read and write files here: %s; take engine auto",
                     device->name, device->error_text(device->ctx, code));
}

static int has_boxes(const dcp_state *state) {
    for (size_t i = 0; i < state->n; i++)
        if (state->tensors[i]->n_boxes) return 1;
    return 0;
}

int plan_check_boxes(dcp_engine wanted, const dcp_state *state, dcp_error *err) {
    if (wanted != DCP_ENGINE_CUFILE) return DCP_OK;
    if (state->device) return dcp_device_check_files(state->device, err);
    if (!has_boxes(state)) return DCP_OK;
    return core_fail(
        err, DCP_ERR_UNSUPPORTED,
        "engine cufile moves what lies on a device, and no box of this rank does: take "
        "engine auto");
}

dcp_engine plan_engine(dcp_engine wanted, const char *dir) {
    if (wanted != DCP_ENGINE_AUTO) return wanted;
    dcp_engine suits = io_engine_for(dir);
    return plan_check_engine(suits, NULL) ? DCP_ENGINE_DIRECT : suits;
}
