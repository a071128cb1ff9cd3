#include "core/file_limit.h"

#include <errno.h>
#include <sys/resource.h>

int core_file_limit_check(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY) return 0;
    if (end <= limit.rlim_cur) return 0;
    errno = EFBIG;
    return -1;
}
