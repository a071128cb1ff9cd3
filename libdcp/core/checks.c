#include "core/checks.h"

#include <string.h>

#include "core/fail.h"
#include "core/json.h"

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

int core_sized_check(const void *given, size_t own_size, const char *init, dcp_error *err) {
    if (!given) return DCP_OK;
    const size_t size = size_of(given);
    if (size < sizeof size)
        return core_fail(err, DCP_ERR_ARG,
                         "a struct's size is %zu: was it made without %s, which sets the size?",
                         size, init);
    if (size > own_size)
        return core_fail(err, DCP_ERR_ARG,
                         "a struct's size is %zu, but in this libdcp, %s, it is %zu: was it made "
                         "without %s, or with headers that are newer than the library?",
                         size, dcp_version(), own_size, init);
    return DCP_OK;
}

int core_sized_copy_in(void *own, size_t own_size, const void *given, const char *init,
                       dcp_error *err) {
    memset(own, 0, own_size);
    const int status = core_sized_check(given, own_size, init, err);
    if (given && !status) memcpy(own, given, size_of(given));
    memcpy(own, &own_size, sizeof own_size);
    return status;
}

void core_sized_copy_out(void *given, const void *own, size_t own_size) {
    if (!given) return;
    const size_t room = size_of(given), copied = room < own_size ? room : own_size;
    memcpy((char *)given + sizeof room, (const char *)own + sizeof room, copied - sizeof room);
}

int core_option_check_choice(const char *option, int value, int last, dcp_error *err) {
    if (value >= 0 && value <= last) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s %d does not exist: 0 to %d are possible", option, value,
                     last);
}

int core_option_check_text(const char *option, const char *text, dcp_error *err) {
    if (!text || core_utf8_is_valid(text, strlen(text))) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s is not UTF-8, but text in JSON must be", option);
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Returns the length of the scheme; 0: the path is not a URL. */
static size_t scheme_of(const char *path) {
    const size_t n = strspn(path, LETTERS "0123456789+.-");
    return n && strspn(path, LETTERS) && strncmp(path + n, "://", 3) == 0 ? n : 0;
}

int core_path_check(const char *what, const char *path, dcp_error *err) {
    const size_t n = path ? scheme_of(path) : 0;
    if (!n) return DCP_OK;
    return core_fail_path(
        core_fail(err, DCP_ERR_UNSUPPORTED,
                  "%s%s%s is a URL, and %.*s:// is not supported: checkpoints lie in directories "
                  "of a file system (a directory of that name is ./%s)",
                  what ? what : "", what ? ": " : "", path, (int)n, path, path),
        path, err);
}
