/* One file of a step, and its tables, which are read before HDF5 or anything else opens the
 * file. */
#pragma once

#include <stdbool.h>

#include "format/index.h"
#include "io/file.h"

/* A load treats the files of a step as one file: they have consecutive addresses, in the order of
 * their numbers. If some ranks do not see some files, the files are ordered by the ranks that read
 * them, not by their numbers, so each reader has one range of addresses. */
typedef struct format_file {
    char *path;  /* for a hidden file: the path on its reader */
    int reader;  /* the rank that reads the file's tables, and reads its data for ranks that
                    can't */
    bool hidden; /* this rank does not see the file */
    int folder;  /* borrowed descriptor of the step's folder; AT_FDCWD: use the path */
    format_userblock ub;
    format_row *rows;
    uint64_t *crcs;         /* checksums of the blocks of all rows */
    char *meta;             /* JSON text without its padding */
    uint64_t base;          /* address of the file's first byte */
    uint64_t first_block;   /* number of blocks in the files before it */
    io_file file;           /* for dcp_load; opened on use */
    io_file plain;          /* for reads through the page cache; opened on use */
    uint64_t after_found;   /* the row after the one that lookup.h found last */
    uint32_t *block_places; /* used by lookup.h */
    bool outside_is_intact; /* result of format_file_check_outside */
} format_file;

/* Returns a file of which nothing has been read yet; takes ownership of the path. */
format_file format_file_of(char *path);

/* Reads and checks only the user block. */
int format_tables_read_userblock(const char *path, format_userblock *ub, dcp_error *err);
/* Reads and checks user block, index, blocks and meta of file->path. */
int format_tables_read(format_file *file, dcp_error *err);
/* Like format_tables_read, but for the bytes from format_tables_pack. `checked`: see
 * format_index_decode. */
int format_tables_unpack(format_file *file, const unsigned char *packed, uint64_t bytes,
                         bool checked, dcp_error *err);
/* Reads the bytes for format_tables_unpack: user block, index, blocks, meta. */
int format_tables_pack(const format_file *file, unsigned char **packed, uint64_t *bytes,
                       dcp_error *err);
/* Prepares file->file and file->plain, which are opened on use. Does nothing if they are already
 * prepared. */
void format_tables_prepare(format_file *file);
/* Frees the rows and the blocks' checksums, but not the user block and the meta. */
void format_tables_free_rows(format_file *file);
void format_tables_free(format_file *file);

/* Reads all the bytes through the page cache, or fails. Several threads may read at once. Returns
 * DCP_ERR_UNSUPPORTED if the file is hidden. */
int format_file_read(format_file *file, void *to, uint64_t bytes, uint64_t offset, dcp_error *err);
/* Announces to the kernel that these bytes will be read soon. */
void format_file_will_read(format_file *file, uint64_t offset, uint64_t bytes);

/* Reads all bytes of the file that are neither user block nor tensor data: HDF5's metadata, tables,
 * padding. Does so only once per file. Returns DCP_ERR_CORRUPT if they differ from what was
 * saved. */
int format_file_check_outside(format_file *file, dcp_error *err);
