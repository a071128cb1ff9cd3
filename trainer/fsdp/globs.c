#include "fsdp/globs.h"

#include <fnmatch.h>

#include "programs/fail.h"

int globs_match(const json_t *globs, const char *name) {
    for (size_t i = 0; i < json_array_size(globs); i++)
        if (fnmatch(json_string_value(json_array_get(globs, i)), name, 0) == 0) return 1;
    return 0;
}

static int is_found(const fsdp_layout *layout, const char *glob) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            if (fnmatch(glob, layout->units[u].params[i].info.name, 0) == 0) return 1;
    return 0;
}

int globs_check(const fsdp_layout *layout, const char *key, const json_t *globs, dcp_error *err) {
    for (size_t i = 0; i < json_array_size(globs); i++) {
        const char *glob = json_string_value(json_array_get(globs, i));
        if (!is_found(layout, glob))
            return core_fail(err, DCP_ERR_ARG, "%s: %.200s matches no parameter", key, glob);
    }
    return DCP_OK;
}
