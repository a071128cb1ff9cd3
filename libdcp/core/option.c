#include "core/option.h"

#include <string.h>

#include "core/fail.h"
#include "core/utf8_length.h"

int core_option_check_choice(const char *option, int value, int last, dcp_error *err) {
    if (value >= 0 && value <= last) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s %d does not exist: 0 to %d are possible", option, value,
                     last);
}

int core_option_check_text(const char *option, const char *text, dcp_error *err) {
    if (!text || core_utf8_is_valid(text, strlen(text))) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s is not UTF-8, as text in JSON has to be", option);
}
