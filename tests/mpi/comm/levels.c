/* The collectives of pieces.c between ranks of three hosts, through slots of 64 bytes on each. */
#define HOSTS 3
#define SLOT_BYTES ((size_t)64)
#include "pieces.c"
