/* Structs of the public interface that begin with their size (dcp/size.h), between a caller whose
 * headers may be older and the library, which works on structs of its own. `init` is the name of
 * the caller's macro, for messages. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

/* Checks the size that the caller gave. NULL is fine. DCP_ERR_ARG names the macro. */
int core_sized_check(const void *given, size_t own_size, const char *init, dcp_error *err);

/* Copies what the caller has into the library's struct; the rest, or all of it where `given` is
 * NULL or this fails, is zero. The copy's own size is `own_size`. */
int core_sized_take(void *own, size_t own_size, const void *given, const char *init,
                    dcp_error *err);

/* Copies as much of the library's struct to the caller as he has room for; his size stays. It has
 * been checked. NULL is ignored. */
void core_sized_give(void *given, const void *own, size_t own_size);
