/* The table of engines. Each row is defined in its own file, engine_<name>.c. */
#include "move/engine.h"

extern const move_engine move_engine_direct, move_engine_mpio;

const move_engine *const move_engines[] = {&move_engine_direct, &move_engine_mpio, NULL};
