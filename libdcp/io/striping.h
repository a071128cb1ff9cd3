/* Striping: the number of object servers of a Lustre file system that hold a file, and the number
 * of bytes that go to one server before the next one follows. A file gets its layout before its
 * first byte is written, and the layout never changes. Other file systems have no striping.
 *
 * The layout is set by the system call that Lustre's own library makes, so that library is not
 * needed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dcp/error.h"

/* The requested layout; all 0: no request. */
typedef struct io_striping {
    int64_t count;  /* number of object servers; 0: none requested; IO_STRIPING_ALL: all */
    uint64_t bytes; /* per stripe; 0: none requested */
} io_striping;

#define IO_STRIPING_ALL (-1)
#define IO_STRIPING_LAYOUT_BYTES 32 /* size of a struct lov_user_md_v1 */

/* Returns DCP_ERR_ARG if no Lustre file can have the layout. */
int io_striping_check(const io_striping *asked, dcp_error *err);

/* Returns true if anything is requested. */
bool io_striping_is_requested(const io_striping *asked);

/* Returns true if the folder is on a Lustre file system. */
bool io_striping_is_possible(const char *folder);

/* Chooses the layout of a new file of `file_bytes` bytes in `folder`, which is on Lustre, if
 * `writers` ranks write it. Returns false if nothing is requested and the folder has a layout of
 * its own, otherwise true. */
bool io_striping_choose(const io_striping *asked, const char *folder, uint64_t file_bytes,
                        uint64_t writers, io_striping *out);

/* Encodes the layout for Lustre. */
void io_striping_encode(const io_striping *layout, unsigned char out[IO_STRIPING_LAYOUT_BYTES]);

/* Like io_create, on Lustre, with that layout. *refused becomes 0, or the errno with which Lustre
 * refused the layout; then the file has its folder's layout. */
int io_striping_create(const char *path, uint64_t bytes, const io_striping *layout, int *refused,
                       dcp_error *err);
