/* The table of engines. */
#ifndef DCP_MOVE_ENGINES_H
#define DCP_MOVE_ENGINES_H

#include "move/engine.h"

/* Each is defined in its own file, engine_<name>.c. */
extern const move_engine move_engine_direct, move_engine_mpio;

/* NULL ends it. The first row is for all file systems that no row lists. */
extern const move_engine *const move_engines[];

#endif
