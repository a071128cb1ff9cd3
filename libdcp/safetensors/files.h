/* Opening what a model's folder holds: regular files, reached by no link out of it. */
#ifndef DCP_SAFETENSORS_FILES_H
#define DCP_SAFETENSORS_FILES_H

#include <stdint.h>

#include "dcp/error.h"

/* "dir/name" into out[PATH_MAX]. */
int st_join(char *out, const char *dir, const char *name, dcp_error *err);
int st_open_regular(const char *path, int *fd_out, uint64_t *size_out, dcp_error *err);
/* Bytes [offset, offset + bytes) into out; a file that ends before is DCP_ERR_CORRUPT. */
int st_read_at(int fd, const char *path, uint64_t offset, void *out, uint64_t bytes,
               dcp_error *err);
/* A file of the folder is in it when links are followed, or in Hugging Face's cache beside it: a
 * snapshot's files are links to ../../blobs. Nothing else that a link names is read. */
int st_check_inside(const char *path, const char *dir, dcp_error *err);

#endif
