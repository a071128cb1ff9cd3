/* Searches the table of engines. */
#include "move/engine.h"

#include <string.h>
#include <sys/vfs.h>

#include "core/fail.h"

static const char automatic[] = "auto";

const move_engine *move_engine_row(dcp_engine engine) {
    for (const move_engine *const *e = move_engines; *e; e++)
        if ((*e)->engine == engine) return *e;
    return NULL;
}

int move_engine_check(dcp_engine wanted, dcp_error *err) {
    const move_engine *row = move_engine_row(wanted);
    if (!row && wanted != DCP_ENGINE_AUTO)
        return core_fail(err, DCP_ERR_ARG, "engine %d does not exist", (int)wanted);
    return row && row->check ? row->check(err) : DCP_OK;
}

int dcp_engine_check(dcp_engine engine, dcp_error *err) { return move_engine_check(engine, err); }

const move_engine *move_engine_for_type(uint64_t type) {
    for (const move_engine *const *e = move_engines; *e; e++)
        for (unsigned i = 0; i < MOVE_FILE_SYSTEMS && (*e)->file_systems[i]; i++)
            if ((*e)->file_systems[i] == type) return *e;
    return move_engines[0];
}

const move_engine *move_engine_choose(dcp_engine wanted, const char *dir) {
    struct statfs fs;
    if (wanted != DCP_ENGINE_AUTO) return move_engine_row(wanted);
    if (statfs(dir, &fs)) return move_engines[0];
    const move_engine *suits = move_engine_for_type((uint64_t)fs.f_type);
    return suits->check && suits->check(NULL) ? move_engines[0] : suits;
}

const move_engine *move_engine_for_scattered(void) { return move_engines[0]; }

const char *dcp_engine_name(dcp_engine engine) {
    const move_engine *row = move_engine_row(engine);
    return row ? row->name : engine == DCP_ENGINE_AUTO ? automatic : NULL;
}

int dcp_engine_parse(const char *name, dcp_engine *out) {
    if (!out) return DCP_ERR_ARG;
    if (name && strcmp(name, automatic) == 0) {
        *out = DCP_ENGINE_AUTO;
        return DCP_OK;
    }
    for (const move_engine *const *e = move_engines; *e && name; e++)
        if (strcmp(name, (*e)->name) == 0) {
            *out = (*e)->engine;
            return DCP_OK;
        }
    return DCP_ERR_NOT_FOUND;
}
