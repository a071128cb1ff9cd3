#include "inspect/filter.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program.h"

int inspect_filter_matches(char *const *globs, size_t n, const char *path, unsigned char *matched) {
    static const char model[] = "/model/";
    const char *name = strncmp(path, model, sizeof model - 1) ? NULL : path + sizeof model - 1;
    int any = !n;
    for (size_t i = 0; i < n; i++)
        if (!fnmatch(globs[i], path, 0) || !fnmatch(globs[i], path + 1, 0) ||
            (name && !fnmatch(globs[i], name, 0))) {
            any = 1;
            if (matched) matched[i] = 1;
        }
    return any;
}

int inspect_filter_tensors(const dcp_checkpoint *ckpt, char *const *globs, size_t n,
                           unsigned char *take) {
    unsigned char *matched = calloc(n + 1, 1);
    int status = matched ? 0 : program_no_memory();
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && !status; i++)
        take[i] = (unsigned char)inspect_filter_matches(
            globs, n, dcp_checkpoint_tensor(ckpt, i)->path, matched);
    for (size_t i = 0; i < n && !status; i++)
        if (!matched[i]) status = program_refuse("no tensor matches '%s'", globs[i]);
    free(matched);
    return status;
}
