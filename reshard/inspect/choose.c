#include "inspect/choose.h"

#include <fnmatch.h>
#include <string.h>

int choose_matches(char *const *globs, size_t n, const char *path, unsigned char *matched) {
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
