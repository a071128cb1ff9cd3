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

dcp_engine plan_engine(dcp_engine wanted, const char *dir) {
    if (wanted != DCP_ENGINE_AUTO) return wanted;
    dcp_engine suits = io_engine_for(dir);
    return plan_check_engine(suits, NULL) ? DCP_ENGINE_DIRECT : suits;
}
