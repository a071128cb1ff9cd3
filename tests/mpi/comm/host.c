/* The collectives of pieces.c between ranks of one host, through slots of 64 bytes. */
#define SLOT_BYTES ((size_t)64)
#include "pieces.c"
