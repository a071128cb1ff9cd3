/* Linked into the library whose structs are longer (--wrap): what it makes of a caller's struct. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checks.h"

int __real_core_sized_copy_in(void *own, size_t own_size, const void *given, const char *init,
                              dcp_error *err);
int __wrap_core_sized_copy_in(void *own, size_t own_size, const void *given, const char *init,
                              dcp_error *err);

/* Members that the caller doesn't know are zero, though other bytes lie behind his struct. */
int __wrap_core_sized_copy_in(void *own, size_t own_size, const void *given, const char *init,
                              dcp_error *err) {
    size_t known = sizeof known;
    int status = __real_core_sized_copy_in(own, own_size, given, init, err);
    if (given && !status) memcpy(&known, given, sizeof known);
    for (size_t i = known; i < own_size; i++)
        if (((const char *)own)[i]) {
            fprintf(stderr, "%s: byte %zu is not zero, and the caller has %zu\n", init, i, known);
            abort();
        }
    return status;
}
