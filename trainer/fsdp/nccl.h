/* NCCL, loaded only when ranks on GPUs need it: runs on the CPU do not pay for it, and the program
 * starts on machines without it. */
#pragma once

#include <nccl.h>

typedef struct fsdp_nccl {
    void *library;
    __typeof__(ncclGetVersion) *version;
    __typeof__(ncclGetUniqueId) *unique_id;
    __typeof__(ncclCommInitRankConfig) *init;
    __typeof__(ncclCommGetAsyncError) *async_error;
    __typeof__(ncclCommAbort) *abort;
    __typeof__(ncclGetErrorString) *error_text;
    __typeof__(ncclGroupStart) *group_start;
    __typeof__(ncclGroupEnd) *group_end;
    __typeof__(ncclSend) *send;
    __typeof__(ncclRecv) *recv;
    __typeof__(ncclReduce) *reduce;
    __typeof__(ncclAllReduce) *all_reduce;
} fsdp_nccl;

/* Returns nonzero if the library or one of its functions is missing. The library is never unloaded:
 * its threads and CUDA's state may still refer to it after the last communicator is gone. */
int fsdp_nccl_load(fsdp_nccl *nccl);
