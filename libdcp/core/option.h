/* What callers' options may be. */
#pragma once

#include "dcp/error.h"

/* An enum's value: DCP_ERR_ARG where it is not one of 0 to `last`. */
int core_option_check_choice(const char *option, int value, int last, dcp_error *err);

/* Text that goes into JSON, or NULL: DCP_ERR_ARG where it is not UTF-8. */
int core_option_check_text(const char *option, const char *text, dcp_error *err);
