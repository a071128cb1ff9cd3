/* Checks of what callers pass: sizes of structs, options, and paths. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

/* Structs of the public interface that begin with their size (dcp/size.h). The caller's headers may
 * be older than the library, which works on its own structs. `init` is the name of the caller's
 * macro, for messages. */

/* Checks the size that the caller set. NULL is valid. DCP_ERR_ARG names the macro. */
int core_sized_check(const void *given, size_t own_size, const char *init, dcp_error *err);

/* Copies the caller's members into the library's struct and zeroes the others; zeroes all if
 * `given` is NULL or the check fails. The copy's own size is `own_size`. */
int core_sized_take(void *own, size_t own_size, const void *given, const char *init,
                    dcp_error *err);

/* Copies as much of the library's struct to the caller's as fits; the caller's size, which was
 * checked before, does not change. NULL is ignored. */
void core_sized_give(void *given, const void *own, size_t own_size);

/* Valid values of callers' options. */

/* Checks an enum's value: DCP_ERR_ARG if it is not one of 0 to `last`. */
int core_option_check_choice(const char *option, int value, int last, dcp_error *err);

/* Checks text that goes into JSON, or NULL: DCP_ERR_ARG if it is not UTF-8. */
int core_option_check_text(const char *option, const char *text, dcp_error *err);

/* Paths from callers. */

/* Returns DCP_ERR_UNSUPPORTED for scheme://, which never names a folder; DCP_OK for everything
 * else, including NULL. The message begins with "<what>: ", or with the path if `what` is NULL. */
int core_path_check(const char *what, const char *path, dcp_error *err);
