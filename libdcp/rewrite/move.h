/* Moving the long runs of a rewrite's new files. */
#ifndef DCP_REWRITE_MOVE_H
#define DCP_REWRITE_MOVE_H

#include "rewrite/runs.h"
#include "save/image.h"

/* save_mover.move of a rewrite: moves the images' bulk parts. */
int rewrite_move(void *rewrite, save_image *const *images, size_t n, dcp_error *err);

#endif
