/* Structs that may grow. Structs of options, reports and tables of functions begin with `size`,
 * which states how much of the struct the caller's headers define:
 *
 *     dcp_save_options options = DCP_SAVE_OPTIONS_INIT;     all members are zero, their defaults
 *     options.layout = DCP_LAYOUT_SHARDED;
 *     dcp_save(store, step, state, json, &options, NULL, &err);
 *
 * C also allows {.size = sizeof(dcp_save_options), .layout = DCP_LAYOUT_SHARDED}. New members are
 * only added at the end. A struct from an older header is shorter: the library treats the members
 * that the struct lacks as zero, and writes nothing beyond its end.
 * DCP_ERR_ARG: the size is smaller than a size_t (it may not have been set), or larger than this
 * library's struct (the headers may be newer). The message names the macro. */
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
