/* The limit on the size of files that a process writes (RLIMIT_FSIZE, `ulimit -f`). The kernel
 * answers a write or an extension beyond it with SIGXFSZ, which ends the program, so the library
 * asks first. The limit holds for memory files, too. */
#pragma once

#include <stdint.h>

/* 0 where this process may write a file up to byte `end`; else -1, and errno is EFBIG. */
int core_file_limit_check(uint64_t end);
