/* For a libdcp that was built without CUDA. */
#include "core/fail.h"
#include "dcp/device.h"

int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err) {
    (void)number;
    (void)stream;
    (void)out;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "this libdcp was built without CUDA: build it where nvcc is found");
}

void dcp_device_cuda_destroy(dcp_device *device) { (void)device; }
