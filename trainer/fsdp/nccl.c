#include "fsdp/nccl.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

int fsdp_nccl_load(fsdp_nccl *nccl) {
    nccl->library = dlopen("libnccl.so." TEXT(NCCL_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) nccl->library = dlopen(NCCL_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) return 1;
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } list[] = {
        {"ncclGetVersion", &nccl->version},
        {"ncclGetUniqueId", &nccl->unique_id},
        {"ncclCommInitRankConfig", &nccl->init},
        {"ncclCommGetAsyncError", &nccl->async_error},
        {"ncclCommAbort", &nccl->abort},
        {"ncclGetErrorString", &nccl->error_text},
        {"ncclGroupStart", &nccl->group_start},
        {"ncclGroupEnd", &nccl->group_end},
        {"ncclSend", &nccl->send},
        {"ncclRecv", &nccl->recv},
        {"ncclReduce", &nccl->reduce},
        {"ncclAllReduce", &nccl->all_reduce},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        void *found = dlsym(nccl->library, list[i].name);
        if (!found) return 1;
        memcpy(list[i].to, &found, sizeof found);
    }
    return 0;
}
