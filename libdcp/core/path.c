#include "core/path.h"

#include <string.h>

#include "core/fail.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* The length of the scheme; 0: the path is no URL. */
static size_t scheme_of(const char *path) {
    const size_t n = strspn(path, LETTERS "0123456789+.-");
    return n && strspn(path, LETTERS) && strncmp(path + n, "://", 3) == 0 ? n : 0;
}

int core_path_check(const char *what, const char *path, dcp_error *err) {
    const size_t n = path ? scheme_of(path) : 0;
    if (!n) return DCP_OK;
    return core_fail_path(core_fail(err, DCP_ERR_UNSUPPORTED,
                                    "%s%s%s is a URL, and %.*s:// is not supported: checkpoints "
                                    "lie in directories of a file system (one of that name is "
                                    "./%s)",
                                    what ? what : "", what ? ": " : "", path, (int)n, path, path),
                          path, err);
}
