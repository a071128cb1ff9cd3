#include "core/entropy.h"

#include <errno.h>
#include <sys/random.h>

#include "core/fail.h"

int core_entropy(uint64_t *out, dcp_error *err) {
    ssize_t n;
    do n = getrandom(out, sizeof *out, 0);
    while (n < 0 && errno == EINTR);
    if (n == sizeof *out) return DCP_OK;
    int status = core_fail(err, DCP_ERR_IO, "the system gives no random numbers: getrandom failed");
    if (err) err->system_error = n < 0 ? errno : 0;
    return status;
}
