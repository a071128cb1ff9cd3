/* Which engine suits which file system. */
#ifndef DCP_IO_ENGINE_H
#define DCP_IO_ENGINE_H

#include <stdint.h>

#include "dcp/save.h"

/* For the file system of that path; DCP_ENGINE_DIRECT where it can't be told. */
dcp_engine io_engine_for(const char *path);
/* For a file system of that type (statfs' f_type). */
dcp_engine io_engine_of_type(uint64_t type);

#endif
