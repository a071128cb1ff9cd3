/* Files: positioned reads and writes, and extents that two files share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dcp/error.h"

/* Files for positioned reads and writes. */

/* How a file is accessed: for reading or for writing, and either past the page cache if the file
 * system allows that, or through the page cache (..._BUFFERED). */
typedef enum io_access { IO_READ, IO_WRITE, IO_READ_BUFFERED, IO_WRITE_BUFFERED } io_access;

typedef struct io_file {
    int fd;
    /* O_DIRECT: offsets and sizes are whole pages, memory is aligned to memory_align */
    bool direct;
    uint32_t memory_align;
    const char *path; /* borrowed */
    /* The other members belong to descriptors.h. */
    int folder;
    bool is_on_use;
    io_access access;
    int failed;     /* errno of a sync that failed before the file was closed */
    unsigned users; /* number of uses of the open file */
    struct io_file *before, *after;
} io_file;

/* Creates `path`, which must not exist, with `bytes` zeros. Reserves space if the file system can,
 * so DCP_ERR_NO_SPACE is returned before any data is written. */
int io_create(const char *path, uint64_t bytes, dcp_error *err);

/* Opens a regular file (access: O_RDONLY or O_WRONLY). Returns DCP_ERR_CORRUPT for symbolic links,
 * devices and pipes: a step's files lie in its folder. Never waits. *bytes becomes the file's
 * size. */
int io_open_regular(const char *path, int access, int *fd, uint64_t *bytes, dcp_error *err);
/* Like io_open_regular if `folder` is AT_FDCWD. If `folder` is a directory's descriptor, opens the
 * entry of that directory that the last component of `path` names, even if the directory was
 * renamed. The rest of the path is then only for messages. */
int io_open_regular_in(int folder, const char *path, int access, int *fd, uint64_t *bytes,
                       dcp_error *err);

/* Opens the file as an io_file. */
int io_open_in(int folder, const char *path, io_access access, io_file *out, dcp_error *err);
/* Opens the file by its path, for writing or reading. */
int io_open(const char *path, int writing, io_file *out, dcp_error *err);
/* Like io_open, but through the page cache. */
int io_open_buffered(const char *path, bool writing, io_file *out, dcp_error *err);

/* Returns the size of a page in the page cache: PAGE_BYTES, or more if the kernel's pages are
 * larger. If some ranks write a file past the page cache and others through it, a page with two
 * writers may lose what one of them wrote. */
uint64_t io_page_bytes(void);

/* Makes the file `bytes` long; adds zeros, and reserves space like io_create. */
int io_reserve(const io_file *file, uint64_t bytes, dcp_error *err);

/* Makes the bytes that were written to the file durable. */
int io_sync(const io_file *file, dcp_error *err);

/* Makes the entries of a folder durable. */
int io_sync_folder(const char *path, dcp_error *err);

void io_close(io_file *file);

/* Identifies the open file and its last change: equal identities mean the same file, unchanged. The
 * identity is all 0 if it can't be determined. */
void io_identify(int fd, uint64_t identity[4]);

/* Returns true if nothing else refers to the file that is open for writing as `fd`: it has one
 * name, and no other process on any machine has it open. If that can't be determined, returns
 * false. */
bool io_is_alone(int fd);

/* Reads all bytes through the page cache. Returns DCP_ERR_CORRUPT if the file ends earlier. */
int io_read_plain(int fd, void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                  dcp_error *err);

/* Writes all bytes through the page cache. */
int io_write_plain(int fd, const void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                   dcp_error *err);

/* Files of one file system that share extents (XFS, btrfs). */

/* Replaces whole pages of `to` with those of `from` at the same offset; the disk stores these pages
 * only once, until they are overwritten in one of the files. Returns 0, or -1 with errno; then the
 * range of `to` is undefined. */
int io_clone(int from, int to, uint64_t offset, uint64_t bytes);

/* Returns true if this errno means that io_clone will also fail for all other files in the two
 * files' folders. */
bool io_clone_is_refused(int error);

/* Reserves space for a range inside the file if the file system can. Returns 0, or -1 with
 * errno. */
int io_reserve_range(int fd, uint64_t offset, uint64_t bytes);
