/* Memory of the kernels, zeroed. */
#pragma once

#include "kernels/kernels.h"
#include "programs/fail.h"

/* *out stays as it is where elems is 0. DCP_ERR_NO_MEMORY. */
static inline int fsdp_alloc(kernels *k, float **out, uint64_t elems, dcp_error *err) {
    if (elems == 0) return DCP_OK;
    *out = k->alloc(k, elems * sizeof(float));
    if (!*out) return core_fail_memory(err, elems * sizeof(float));
    k->zero(k, *out, elems);
    return DCP_OK;
}
