/* Hugging Face's safetensors files, reading and writing, by one process. */
#ifndef DCP_SAFETENSORS_H
#define DCP_SAFETENSORS_H

#include <stddef.h>

#include "dcp/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_st_reader dcp_st_reader;
typedef struct dcp_st_writer dcp_st_writer;

/* Opens one .safetensors file, or a file *.safetensors.index.json with the files that it names,
 * which lie beside it, or a folder with model.safetensors or model.safetensors.index.json. Headers
 * are checked before use: lengths over 100,000,000 bytes or past the end, duplicate names,
 * overlaps, holes, shapes that contradict sizes, names of tensors that no checkpoint takes (empty,
 * `.`, `..`, with a slash or over 1,024 bytes), tensors that the index omits or that a file lacks,
 * and names or symbolic links that leave the folder are DCP_ERR_CORRUPT with what and where (links
 * into the blobs of the Hugging Face cache that the folder is in are followed).
 * DCP_ERR_UNSUPPORTED: another element type (dcp_dtype_parse), more than 8 dimensions, 1,048,576
 * tensors or 65,536 files. Memory: a header's bytes, and some 150 a tensor.
 */
DCP_API int dcp_st_open(const char *path, dcp_st_reader **out, dcp_error *err);
/* The same, but tensors that an index names and no file of it holds are no error, and told by
 * dcp_st_absent: indexes name tied weights that were not written. */
DCP_API int dcp_st_open_incomplete(const char *path, dcp_st_reader **out, dcp_error *err);
DCP_API void dcp_st_close(dcp_st_reader *reader);

/* The tensors, bytewise ascending by name (tensor->path is the plain name, without a slash before
 * it); valid until the close. */
DCP_API size_t dcp_st_tensors(const dcp_st_reader *reader);
DCP_API const dcp_tensor *dcp_st_tensor(const dcp_st_reader *reader, size_t i);
/* NULL where there is none. */
DCP_API const dcp_tensor *dcp_st_find(const dcp_st_reader *reader, const char *name);
/* The names of tensors that the index names and no file holds, ascending; NULL from their number
 * on. Valid until the close. */
DCP_API const char *dcp_st_absent(const dcp_st_reader *reader, size_t i);
/* The files that were opened; valid until the close. A folder may hold more. */
DCP_API size_t dcp_st_files(const dcp_st_reader *reader);
DCP_API const char *dcp_st_file(const dcp_st_reader *reader, size_t i);
/* Bytes [offset, offset + bytes) of the tensor's data into out. */
DCP_API int dcp_st_read(dcp_st_reader *reader, const char *name, uint64_t offset, uint64_t bytes,
                        void *out, dcp_error *err);

/* Opens another file of the model's folder for reading, by the same rules: a regular file, and no
 * link out of the folder. *fd is the caller's to close. DCP_ERR_NOT_FOUND: there is none. */
DCP_API int dcp_st_open_file(const char *folder, const char *name, int *fd, uint64_t *bytes,
                             dcp_error *err);

/* What such a file begins with, for programs whose processes write its data side by side: length
 * and header, with __metadata__ {"format":"pt"}, a multiple of 8 bytes. The tensors' data follows,
 * in this order and without gaps. *out is the caller's to free. DCP_ERR_ARG: a name that is no
 * UTF-8, comes twice or is __metadata__; a size over 2^63. DCP_ERR_UNSUPPORTED: a tensor of C128,
 * for which safetensors has no name. */
DCP_API int dcp_st_header(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes,
                          dcp_error *err);

/* Creates `path` for exactly these tensors (path: the plain name) in this order, with __metadata__
 * {"format":"pt"}. The file appears under its name, durable, at dcp_st_finish. DCP_ERR_ARG: as for
 * dcp_st_header; or a folder has the name, or something else that is no file. */
DCP_API int dcp_st_create(const char *path, const dcp_tensor *tensors, size_t n,
                          dcp_st_writer **out, dcp_error *err);
/* Appends the next bytes of data; pieces of any size, tensors in the order given at creation. */
DCP_API int dcp_st_write(dcp_st_writer *writer, const void *data, uint64_t bytes, dcp_error *err);
/* Ends the file: every byte must have been written (DCP_ERR_STATE). Frees the writer either way.
 * Where the folder alone could not be synced, the file is there all the same, and the message of
 * DCP_ERR_IO says so. */
DCP_API int dcp_st_finish(dcp_st_writer *writer, dcp_error *err);
/* Drops an unfinished file. NULL is ignored. */
DCP_API void dcp_st_cancel(dcp_st_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
