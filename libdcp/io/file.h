/* Files: positioned reads and writes, and extents that two files share. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

/* Files for positioned reads and writes, past the page cache where the file system allows it. */

/* To read or to write; past the page cache where the file system allows it, or through it. */
typedef enum io_access { IO_READ, IO_WRITE, IO_READ_BUFFERED, IO_WRITE_BUFFERED } io_access;

typedef struct io_file {
    int fd;
    int direct; /* O_DIRECT: offsets and sizes are pages, memory is memory_align-ed */
    uint32_t memory_align;
    const char *path; /* borrowed */
    /* The rest is use.h's. */
    int is_on_use, folder;
    io_access access;
    int failed;     /* errno of a sync before it was closed */
    unsigned users; /* while it is open */
    struct io_file *before, *after;
} io_file;

/* Creates `path` (which must not exist) with `bytes` bytes of zeros, space reserved where the file
 * system can. DCP_ERR_NO_SPACE before any data moves. */
int io_create(const char *path, uint64_t bytes, dcp_error *err);

/* Opens a regular file (access: O_RDONLY or O_WRONLY). Symbolic links, devices and pipes are
 * DCP_ERR_CORRUPT: a step's files lie in its folder. Never waits. *bytes: its size. */
int io_open_regular(const char *path, int access, int *fd, uint64_t *bytes, dcp_error *err);
/* The same where `folder` is a directory's descriptor: the path's last component is opened in that
 * directory, whatever name it has now, and the path is for messages. AT_FDCWD: as above. */
int io_open_regular_in(int folder, const char *path, int access, int *fd, uint64_t *bytes,
                       dcp_error *err);

/* As an io_file. */
int io_open_in(int folder, const char *path, io_access access, io_file *out, dcp_error *err);
/* By its path, for writing or for reading. */
int io_open(const char *path, int writing, io_file *out, dcp_error *err);
/* The same through the page cache. */
int io_open_buffered(const char *path, int writing, io_file *out, dcp_error *err);

/* The size of a page of the page cache: PAGE_BYTES, or more where the kernel's pages are larger.
 * Where some ranks write a file past the page cache and others through it, a page of it with two
 * writers may lose what one of them wrote. */
uint64_t io_page_bytes(void);

/* Makes the file `bytes` long, what is added zero and reserved as by io_create. */
int io_reserve(const io_file *file, uint64_t bytes, dcp_error *err);

/* Makes what was written durable. */
int io_sync(const io_file *file, dcp_error *err);

/* Syncs a folder: its entries are durable. */
int io_sync_folder(const char *path, dcp_error *err);

void io_close(io_file *file);

/* Identifies the open file and its last change: equal identities mean the same file, unchanged. All
 * 0 where that can't be told. */
void io_identify(int fd, uint64_t identity[4]);

/* Whether nothing else refers to the file that is open for writing as `fd`: it has one name, and
 * nobody else has it open, on this machine or another. 0 also where that can't be told. */
int io_is_alone(int fd);

/* Whole reads through the page cache; a file that ends before is DCP_ERR_CORRUPT. */
int io_read_plain(int fd, void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                  dcp_error *err);

/* Whole writes through the page cache. */
int io_write_plain(int fd, const void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                   dcp_error *err);

/* Files of one file system that share their extents (XFS, btrfs). */

/* Whole pages of `to` become those of `from` at the same offset; the disk keeps them once until one
 * of the files is written there. 0, or -1 with errno; then the range of `to` is undefined. */
int io_clone(int from, int to, uint64_t offset, uint64_t bytes);

/* Whether io_clone will fail with this errno for all files of the two folders. */
int io_clone_is_refused(int error);

/* Reserves space for a range inside the file, where the file system can. 0, or -1 with errno. */
int io_reserve_range(int fd, uint64_t offset, uint64_t bytes);
