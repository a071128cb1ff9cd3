/* Reading and writing of Hugging Face's safetensors files, by one process. */
#ifndef DCP_SAFETENSORS_H
#define DCP_SAFETENSORS_H

#include <stddef.h>

#include "dcp/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_st_reader dcp_st_reader;
typedef struct dcp_st_writer dcp_st_writer;

/* Opens one .safetensors file; or a file *.safetensors.index.json with the files that it names,
 * which must be beside it; or a folder with model.safetensors or model.safetensors.index.json.
 * Headers are checked before use. Memory: the bytes of a header, and some 150 bytes per tensor.
 * DCP_ERR_CORRUPT (the message says what is wrong, and where): a length over 100,000,000 bytes or
 * past the end; duplicate names; overlaps or holes; a shape that contradicts a size; a tensor name
 * that no checkpoint accepts (empty, `.`, `..`, with a slash, or over 1,024 bytes); a tensor that
 * the index omits or that a file lacks; a name or symbolic link that leads out of the folder (links
 * into the blobs of the Hugging Face cache that the folder is in are followed).
 * DCP_ERR_UNSUPPORTED: another element type (dcp_dtype_parse), or more than 8 dimensions, 1,048,576
 * tensors or 65,536 files. */
DCP_API int dcp_st_open(const char *path, dcp_st_reader **out, dcp_error *err);
/* Like dcp_st_open, but accepts tensors that an index names but none of its files holds, such as
 * tied weights that were not written. dcp_st_absent returns their names. */
DCP_API int dcp_st_open_incomplete(const char *path, dcp_st_reader **out, dcp_error *err);
/* Closes the files and frees the reader. NULL is ignored. */
DCP_API void dcp_st_close(dcp_st_reader *reader);

/* Return the number of tensors, and tensor i, bytewise ascending by name. tensor->path is the plain
 * name, without a slash before it. Pointers are valid until the close. */
DCP_API size_t dcp_st_tensors(const dcp_st_reader *reader);
DCP_API const dcp_tensor *dcp_st_tensor(const dcp_st_reader *reader, size_t i);
/* Returns the tensor of that name, NULL if there is none; valid until the close. */
DCP_API const dcp_tensor *dcp_st_find(const dcp_st_reader *reader, const char *name);
/* Returns name i, in ascending order, of the tensors that the index names but no file holds; NULL
 * if there are no more than i of them. Valid until the close. */
DCP_API const char *dcp_st_absent(const dcp_st_reader *reader, size_t i);
/* Return the number of files that were opened, and the path of file i; valid until the close. A
 * folder may hold more files. */
DCP_API size_t dcp_st_files(const dcp_st_reader *reader);
DCP_API const char *dcp_st_file(const dcp_st_reader *reader, size_t i);
/* Reads bytes [offset, offset + bytes) of the tensor's data into `out`. */
DCP_API int dcp_st_read(dcp_st_reader *reader, const char *name, uint64_t offset, uint64_t bytes,
                        void *out, dcp_error *err);

/* Opens another file of the model's folder for reading, under the same rules: it must be a regular
 * file, and not a link that leads out of the folder. *fd is the file descriptor, which the caller
 * closes, and *bytes the file's size. DCP_ERR_NOT_FOUND: there is no such file. */
DCP_API int dcp_st_open_file(const char *folder, const char *name, int *fd, uint64_t *bytes,
                             dcp_error *err);

/* Makes the start of a .safetensors file, its length and header, for programs in which several
 * processes write the data at the same time. The header has __metadata__ {"format":"pt"}. *bytes is
 * a multiple of 8. The tensors' data follows in the order of `tensors`, without gaps. The caller
 * frees *out with free().
 * DCP_ERR_ARG: a name that is not UTF-8, occurs twice or is __metadata__; or a size over 2^63.
 * DCP_ERR_UNSUPPORTED: a tensor of C128, for which safetensors has no name. */
DCP_API int dcp_st_header(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes,
                          dcp_error *err);

/* Creates the file `path` for exactly these tensors, in this order, with __metadata__
 * {"format":"pt"}. The tensors' paths are plain names. dcp_st_finish makes the file durable and
 * gives it its name. DCP_ERR_ARG: as for dcp_st_header; or `path` is a folder, or something else
 * that is not a file. */
DCP_API int dcp_st_create(const char *path, const dcp_tensor *tensors, size_t n,
                          dcp_st_writer **out, dcp_error *err);
/* Appends the next bytes of data, in pieces of any size. The tensors' data must come in the order
 * given at creation. */
DCP_API int dcp_st_write(dcp_st_writer *writer, const void *data, uint64_t bytes, dcp_error *err);
/* Completes the file, and frees the writer in any case. DCP_ERR_STATE: not every byte was written.
 * If only the folder could not be synced, the file exists nonetheless, and the message
 * of DCP_ERR_IO says so. */
DCP_API int dcp_st_finish(dcp_st_writer *writer, dcp_error *err);
/* Discards an unfinished file, and frees the writer. NULL is ignored. */
DCP_API void dcp_st_cancel(dcp_st_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
