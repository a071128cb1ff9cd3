/* The tables of a file: index, blocks, JSON and the user block. */
#ifndef DCP_SAVE_WRITE_TABLES_H
#define DCP_SAVE_WRITE_TABLES_H

#include "save/image.h"

/* One rank, when the checksums of all data are known: writes them into the open file. */
int save_tables_write(const save_image *im, io_queue *queue, dcp_error *err);

#endif
