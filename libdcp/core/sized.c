#include "core/sized.h"

#include <string.h>

#include "core/fail.h"

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
                         "a struct's size is %zu: was it made without %s? That sets it", size,
                         init);
    if (size > own_size)
        return core_fail(err, DCP_ERR_ARG,
                         "a struct's size is %zu, in this libdcp, %s, it is %zu: was it made "
                         "without %s, or by headers that are newer than the library?",
                         size, dcp_version(), own_size, init);
    return DCP_OK;
}

int core_sized_take(void *own, size_t own_size, const void *given, const char *init,
                    dcp_error *err) {
    memset(own, 0, own_size);
    const int status = core_sized_check(given, own_size, init, err);
    if (given && !status) memcpy(own, given, size_of(given));
    memcpy(own, &own_size, sizeof own_size);
    return status;
}

void core_sized_give(void *given, const void *own, size_t own_size) {
    if (!given) return;
    const size_t room = size_of(given), copied = room < own_size ? room : own_size;
    memcpy((char *)given + sizeof room, (const char *)own + sizeof room, copied - sizeof room);
}
