/* Extents of a file system: which ones a file shares with others, and how to leave little free
 * space. */
#ifndef TESTS_MPI_EXTENTS_H
#define TESTS_MPI_EXTENTS_H

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/check.h"

/* The number of bytes that the file shares with others, as reported by the file system. */
static inline uint64_t extents_shared_bytes(const char *path) {
    union {
        struct fiemap map;
        char room[sizeof(struct fiemap) + 1000 * sizeof(struct fiemap_extent)];
    } m;
    uint64_t bytes = 0;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    memset(&m, 0, sizeof m);
    m.map.fm_length = FIEMAP_MAX_OFFSET;
    m.map.fm_flags = FIEMAP_FLAG_SYNC;
    m.map.fm_extent_count = 1000;
    CHECK(ioctl(fd, FS_IOC_FIEMAP, &m.map) == 0 && m.map.fm_mapped_extents < 1000);
    for (unsigned i = 0; i < m.map.fm_mapped_extents; i++)
        if (m.map.fm_extents[i].fe_flags & FIEMAP_EXTENT_SHARED)
            bytes += m.map.fm_extents[i].fe_length;
    close(fd);
    return bytes;
}

/* Fills the file system except for about so many bytes. Does not use statvfs, which is too
 * imprecise. Returns the file's descriptor. */
static inline int extents_fill(const char *path, uint64_t but_bytes) {
    const off_t but = (off_t)but_bytes;
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    off_t at = 0;
    CHECK(fd >= 0);
    for (off_t part = 64 << 20; part >= 1 << 20; part /= 2)
        while (posix_fallocate(fd, at, part) == 0) at += part;
    CHECK(at > but && ftruncate(fd, at - but) == 0 && syncfs(fd) == 0);
    return fd;
}

#endif
