/* Striping: over how many object servers of a Lustre file system a file's bytes go, and how many of
 * them go to one server before the next one's turn. A file gets its layout before its first byte,
 * and keeps it for as long as it is there. Other file systems have no such thing.
 *
 * The layout is set by the call that Lustre's own library makes, so that library is not needed. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

/* What is asked for; all 0: nothing in particular. */
typedef struct io_striping {
    int64_t count;  /* object servers; 0: to be chosen; IO_STRIPING_ALL: all there are */
    uint64_t bytes; /* of a stripe; 0: to be chosen */
} io_striping;

#define IO_STRIPING_ALL (-1)
#define IO_STRIPING_LAYOUT_BYTES 32 /* of a struct lov_user_md_v1 */

/* DCP_ERR_ARG: no Lustre file can be like that. */
int io_striping_check(const io_striping *asked, dcp_error *err);

/* Whether it asks for anything. */
int io_striping_is_asked(const io_striping *asked);

/* Whether the folder is on a Lustre file system. */
int io_striping_is_possible(const char *folder);

/* The layout of a new file of `file_bytes` bytes in `folder`, which is on Lustre, where so many
 * ranks write it; 0: its folder has one of its own, and nothing was asked for. */
int io_striping_choose(const io_striping *asked, const char *folder, uint64_t file_bytes,
                       uint64_t writers, io_striping *out);

/* The layout as Lustre takes it. */
void io_striping_encode(const io_striping *layout, unsigned char out[IO_STRIPING_LAYOUT_BYTES]);

/* io_create on Lustre, with that layout. *refused: 0, or the errno with which Lustre did not take
 * the layout; the file then has its folder's. */
int io_striping_create(const char *path, uint64_t bytes, const io_striping *layout, int *refused,
                       dcp_error *err);
