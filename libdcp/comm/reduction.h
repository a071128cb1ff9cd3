/* One step of a reduction. */
#pragma once

#include "dcp/comm.h"

static inline void comm_reduce(uint64_t *buf, const uint64_t *other, uint64_t n, dcp_reduce op) {
    for (uint64_t i = 0; i < n; i++) switch (op) {
        case DCP_REDUCE_MAX:
            if (other[i] > buf[i]) buf[i] = other[i];
            break;
        case DCP_REDUCE_MIN:
            if (other[i] < buf[i]) buf[i] = other[i];
            break;
        case DCP_REDUCE_SUM:
            buf[i] += other[i];
            break;
        case DCP_REDUCE_XOR:
            buf[i] ^= other[i];
            break;
        }
}
