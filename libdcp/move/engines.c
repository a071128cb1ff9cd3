/* The table of engines. */
#include "move/engines.h"

const move_engine *const move_engines[] = {&move_engine_direct, &move_engine_mpio, NULL};
