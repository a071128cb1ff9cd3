/* Checks of what callers pass: sizes of structs, options, and paths. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

/* Structs of the public interface that begin with their size (dcp/size.h). The caller's headers may
 * be older than the library, which works on its own structs. `init` is the name of the caller's
 * macro, for messages. */

/* Checks the size that the caller set; NULL is accepted. If the size is not valid, returns
 * DCP_ERR_ARG, with the name of the macro in the message. */
int core_sized_check(const void *given, size_t own_size, const char *init, dcp_error *err);

/* Copies the caller's members into the library's struct and zeroes the others; zeroes all members
 * if `given` is NULL or the check fails. The size member of the library's struct becomes
 * `own_size`. */
int core_sized_copy_in(void *own, size_t own_size, const void *given, const char *init,
                       dcp_error *err);

/* Copies as much of the library's struct as fits to the caller's struct; the caller's size, which
 * was checked before, does not change. NULL is ignored. */
void core_sized_copy_out(void *given, const void *own, size_t own_size);

/* Valid values of callers' options. */

/* Returns DCP_ERR_ARG if an enum's value is not within 0 to `last`. */
int core_option_check_choice(const char *option, int value, int last, dcp_error *err);

/* Returns DCP_ERR_ARG if a text for JSON is not UTF-8. NULL is valid. */
int core_option_check_text(const char *option, const char *text, dcp_error *err);

/* Paths from callers. */

/* Returns DCP_ERR_UNSUPPORTED for scheme://, which never names a folder; DCP_OK for everything
 * else, including NULL. The message begins with "<what>: ", or with the path if `what` is NULL. */
int core_path_check(const char *what, const char *path, dcp_error *err);
