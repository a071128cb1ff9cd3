/* Checks of what callers pass: sizes of structs, options, and paths. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

/* Structs of the public interface that begin with their size (dcp/size.h), between a caller whose
 * headers may be older and the library, which works on structs of its own. `init` is the name of
 * the caller's macro, for messages. */

/* Checks the size that the caller gave. NULL is fine. DCP_ERR_ARG names the macro. */
int core_sized_check(const void *given, size_t own_size, const char *init, dcp_error *err);

/* Copies what the caller has into the library's struct; the rest, or all of it where `given` is
 * NULL or this fails, is zero. The copy's own size is `own_size`. */
int core_sized_take(void *own, size_t own_size, const void *given, const char *init,
                    dcp_error *err);

/* Copies as much of the library's struct to the caller as he has room for; his size stays. It has
 * been checked. NULL is ignored. */
void core_sized_give(void *given, const void *own, size_t own_size);

/* What callers' options may be. */

/* An enum's value: DCP_ERR_ARG where it is not one of 0 to `last`. */
int core_option_check_choice(const char *option, int value, int last, dcp_error *err);

/* Text that goes into JSON, or NULL: DCP_ERR_ARG where it is not UTF-8. */
int core_option_check_text(const char *option, const char *text, dcp_error *err);

/* Paths that callers give. */

/* DCP_ERR_UNSUPPORTED for scheme://, which no folder is meant by; DCP_OK for all else, NULL too.
 * The message begins with "<what>: ", or with the path where that is NULL. */
int core_path_check(const char *what, const char *path, dcp_error *err);
