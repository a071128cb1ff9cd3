/* A libdcp that was built with CUDA, but without cuFile. */
#include <stddef.h>

#include "device/cufile.h"

const dcp_device_files *cufile_files(void) { return NULL; }

const char *cufile_error_text(int code) {
    (void)code;
    return NULL;
}
