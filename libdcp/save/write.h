/* Moving a rank's pieces into a file: fragments through the ranks that own the file's regions,
 * whole pages of long runs by the holder itself. */
#ifndef DCP_SAVE_WRITE_H
#define DCP_SAVE_WRITE_H

#include "copy/window.h"
#include "save/progress.h"

/* Collective over `comm`. Sends fragments to their owners, which write them in whole pages (bytes
 * of a page that no fragment fills are zero). Adds what it moves to the pieces' checksums. */
int write_fragments(dcp_comm *comm, io_queue *queue, const io_file *file, uint64_t file_bytes,
                    const piece *pieces, size_t n, save_progress *progress, dcp_error *err);

/* Not collective. Writes the whole pages of direct pieces and adds them to the checksums. is_last:
 * no other memory of the save is read after these pieces', so it may be released early. */
int write_direct(io_queue *queue, const io_file *file, const piece *pieces, size_t n,
                 save_progress *progress, int is_last, dcp_error *err);

#endif
