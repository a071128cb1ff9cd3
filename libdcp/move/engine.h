/* Engines: how bytes of a transfer get into files and out of them. An engine is one file and one
 * row of the table in engines.c. */
#pragma once

#include "dcp/save.h"

struct io_file;
struct move_transfer;

#define MOVE_FILE_SYSTEMS 4

typedef struct move_engine {
    dcp_engine engine; /* its value in the public interface; never DCP_ENGINE_AUTO */
    const char *name;
    /* Types of file systems (statfs' f_type) that it suits best; 0: no more. */
    uint64_t file_systems[MOVE_FILE_SYSTEMS];
    /* It writes pages by their position in the file, and no others; through transfer->queue, into
     * files that the caller has opened. So files can share extents and be recycled, bulk parts can
     * be left to the caller, and a rank can read for others. */
    int is_by_position;
    /* It may be called by any thread, not by the program's own alone. */
    int is_for_any_thread;
    /* Whether it can be used here; NULL: everywhere. */
    int (*check)(dcp_error *err);
    /* Opens a file to be written. */
    int (*open)(const char *path, struct io_file *out, dcp_error *err);
    /* Collective: moves all pieces between their boxes and the files, adds them and the replicas to
     * their checksums, and ends with move_transfer_finish. */
    int (*to_file)(struct move_transfer *t, dcp_error *err);
    int (*from_files)(struct move_transfer *t, dcp_error *err);
} move_engine;

/* The table (engines.c); NULL ends it. The first row is for all file systems that no row lists. */
extern const move_engine *const move_engines[];

/* The row of that engine; NULL where there is none, as for DCP_ENGINE_AUTO. */
const move_engine *move_engine_row(dcp_engine engine);

/* Whether there is such an engine, or it is DCP_ENGINE_AUTO, and it can be used here. */
int move_engine_check(dcp_engine wanted, dcp_error *err);

/* That engine; for DCP_ENGINE_AUTO the one that suits dir's file system as this rank sees it, where
 * it can be used. */
const move_engine *move_engine_choose(dcp_engine wanted, const char *dir);
/* The one for files that not all ranks see: a rank reads for others. */
const move_engine *move_engine_for_scattered(void);
/* The one that suits a file system of that type (statfs' f_type). */
const move_engine *move_engine_for_type(uint64_t type);
