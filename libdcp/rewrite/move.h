/* Moving the long runs of a rewrite's new files. */
#pragma once

#include "rewrite/runs.h"
#include "save/image.h"

/* save_mover.move of a rewrite: moves the images' bulk parts. */
int rewrite_move(void *rewrite, save_image *const *images, size_t n, dcp_error *err);
