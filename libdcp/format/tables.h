/* One file of a step: its tables, read before HDF5 or anything else sees the file. */
#pragma once

#include "format/index.h"
#include "io/file.h"

/* A load sees a step's files as one file: they have addresses one after the other, in their order.
 * Where some ranks cannot see some files, the order is that of the ranks that read them, so that
 * each reader has one range of addresses. */
typedef struct format_file {
    char *path; /* of a hidden one: as its reader sees it */
    int reader; /* the rank that reads its tables, and its data for ranks that can't */
    int hidden; /* this rank doesn't see it */
    int folder; /* a descriptor of the step's folder, borrowed; AT_FDCWD: the path is followed */
    format_userblock ub;
    format_row *rows;
    uint64_t *crcs;         /* of blocks, all rows' */
    char *meta;             /* JSON text without its padding */
    uint64_t base;          /* its first byte's address */
    uint64_t first_block;   /* of all files' blocks */
    io_file file;           /* for dcp_load; opened on use */
    io_file plain;          /* for reads through the page cache, likewise */
    uint64_t after_found;   /* the row behind the one that lookup.h found last */
    uint32_t *block_places; /* also lookup.h's */
    int outside_is_intact;  /* format_file_check_outside found it so */
} format_file;

/* A file of which nothing was read; takes over the path. */
format_file format_file_of(char *path);

/* Reads and checks the user block alone. */
int format_tables_read_userblock(const char *path, format_userblock *ub, dcp_error *err);
/* Reads and checks user block, index, blocks and meta of file->path. */
int format_tables_read(format_file *file, dcp_error *err);
/* The same from what format_tables_pack put together; `checked`: as format_index_decode has it. */
int format_tables_unpack(format_file *file, const unsigned char *packed, uint64_t bytes,
                         int checked, dcp_error *err);
/* Reads the bytes that format_tables_unpack takes: user block, index, blocks, meta. */
int format_tables_pack(const format_file *file, unsigned char **packed, uint64_t *bytes,
                       dcp_error *err);
/* Where its data are read from, on use. Does nothing where that is so already. */
void format_tables_prepare(format_file *file);
/* Frees the rows and the blocks' checksums; the user block and the meta stay. */
void format_tables_forget(format_file *file);
void format_tables_free(format_file *file);

/* Whole reads through the page cache; several threads may read at once. DCP_ERR_UNSUPPORTED: the
 * file is hidden. */
int format_file_read(format_file *file, void *to, uint64_t bytes, uint64_t offset, dcp_error *err);
/* Says that these bytes will be read soon. */
void format_file_will_read(format_file *file, uint64_t offset, uint64_t bytes);

/* Reads all bytes of the file that are neither user block nor tensor data: HDF5's metadata, tables,
 * padding; once for a file. DCP_ERR_CORRUPT: they are not what was saved. */
int format_file_check_outside(format_file *file, dcp_error *err);
