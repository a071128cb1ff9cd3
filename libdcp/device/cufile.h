/* GPUDirect Storage by NVIDIA's cuFile, between cuda.c and cufile.c; no_cufile.c where it is not
 * built.
 */
#ifndef DCP_DEVICE_CUFILE_H
#define DCP_DEVICE_CUFILE_H

#include "dcp/device.h"

/* Of a device that device_cuda_enter takes; NULL where it is not built. */
const dcp_device_files *cufile_files(void);

/* The text of a code of these functions; NULL where it is another's. */
const char *cufile_error_text(int code);

/* Makes the device the calling thread's own; 0, or a code of CUDA's. */
int device_cuda_enter(void *ctx);

#endif
