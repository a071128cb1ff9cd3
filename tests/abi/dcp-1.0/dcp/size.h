/* Structs that may get longer. Structs of options, reports and tables of functions begin with
 * `size`, which says how much of the struct the caller's headers know:
 *
 *     dcp_save_options options = DCP_SAVE_OPTIONS_INIT;     all members are zero, their defaults
 *     options.layout = DCP_LAYOUT_SHARDED;
 *     dcp_save(store, step, state, json, &options, NULL, &err);
 *
 * In C also: {.size = sizeof(dcp_save_options), .layout = DCP_LAYOUT_SHARDED}. New members are only
 * added at the end. A struct of an older header is shorter: what it lacks counts as zero, and the
 * library writes nothing beyond it. DCP_ERR_ARG: the size is less than a size_t's, as where it was
 * forgotten, or more than this library's, as with newer headers; the message names the macro. */
#ifndef DCP_SIZE_H
#define DCP_SIZE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C++" {
template <class Struct> inline Struct dcp_sized() {
    Struct value = Struct();
    value.size = sizeof(Struct);
    return value;
}
}
#define DCP_SIZED(type) dcp_sized<type>()
#else
#define DCP_SIZED(type)                                                                            \
    { .size = sizeof(type) }
#endif

#endif
