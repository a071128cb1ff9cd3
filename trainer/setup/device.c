#include "setup/device.h"

#include <string.h>

#include "programs/fail.h"

static int fail(const config *c, int status, dcp_error *err) {
    switch (status) {
    case KERNELS_UNKNOWN:
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "device: %s: this build has none; build with -DDCP_CUDA=ON, or set "
                         "device=cpu",
                         c->device);
    case KERNELS_NO_DEVICE:
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "device: %s: no GPU that works is here%s%s; set device=cpu", c->device,
                         kernels_why() ? ": " : "", kernels_why() ? kernels_why() : "");
    default:
        return core_fail_memory(err, 0);
    }
}

int device_memory(const kernels *k, dcp_device **out, dcp_error *err) {
    void *stream;
    const int number = k->place(k, &stream);
    *out = NULL;
    if (number == KERNELS_HOST) return DCP_OK;
    return dcp_device_cuda_create(number, stream, out, err);
}

/* A file's memory is the host's, and no GPU reaches it. */
static int check_memory(const config *c, const kernels *k, dcp_error *err) {
    const int on_host = kernels_on_host(k);
    if (on_host && c->offloads && !c->offload_path)
        return core_fail(err, DCP_ERR_ARG, "%s", config_no_offload);
    if (on_host || !c->offload_path) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "fsdp.offload_path: not with device %s, which reaches no file; leave it "
                     "out: fsdp.cpu_offload alone keeps parameters and moments in the host's "
                     "memory",
                     k->name);
}

int device_open(const config *c, unsigned number, kernels **out, dcp_error *err) {
    const int is_auto = strcmp(c->device, "auto") == 0;
    int status = kernels_open_on(is_auto ? "cuda" : c->device, number, out);
    if (is_auto && (status == KERNELS_UNKNOWN || status == KERNELS_NO_DEVICE))
        status = kernels_open("cpu", out);
    if (status != KERNELS_OK) return fail(c, status, err);
    (*out)->allow_tf32(*out, c->tf32);
    const int failed = check_memory(c, *out, err);
    if (failed) {
        kernels_close(*out);
        *out = NULL;
    }
    return failed;
}
