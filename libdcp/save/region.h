/* Fragments of a save and the regions that they are put together in. Carriers take them from the
 * ranks that hold them to the ranks that own and write the regions: by messages (messages.c), or
 * through memory that the ranks share (shared.c). */
#ifndef DCP_SAVE_REGION_H
#define DCP_SAVE_REGION_H

#include "save/write.h"

#define REGION_PAGES (IO_SLOT_BYTES / PAGE_BYTES)

/* This rank's region of a window while it is put together. */
typedef struct region {
    unsigned char *buffer;
    uint64_t start; /* in the file */
    unsigned char touched[REGION_PAGES];
} region;

/* Starts writing the touched pages: one request for each row of them. */
void region_write(const region *own, io_queue *queue, unsigned slot, const io_file *file);

/* All fragments of this rank. */
typedef struct fragments {
    dcp_comm *comm;
    io_queue *queue;
    const io_file *file;
    const piece *pieces;
    size_t n;
    windows windows;
    save_progress *progress;
    int status; /* this rank's own: the first source that failed; it goes on all the same */
    dcp_error error;
} fragments;

/* Fetches a fragment's bytes into `to`, and adds them to its checksums. */
void fragments_pack(fragments *f, const fragment *part, unsigned char *to);

/* The carriers. Collective. */
int send_by_messages(fragments *f, dcp_error *err);
int send_by_memory(fragments *f, dcp_error *err);

#endif
