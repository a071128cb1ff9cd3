/* Engines: how a transfer's bytes get into and out of files. An engine consists of one source file
 * and one row of the table in engines.c. */
#pragma once

#include <stdbool.h>

#include "dcp/save.h"

struct io_file;
struct move_transfer;

#define MOVE_FILE_SYSTEMS 4

typedef struct move_engine {
    dcp_engine engine; /* its value in the public interface; never DCP_ENGINE_AUTO */
    const char *name;
    /* The types of file systems (statfs' f_type) that it suits best; 0 ends the list. */
    uint64_t file_systems[MOVE_FILE_SYSTEMS];
    /* Set if the engine writes only whole pages, by their positions in the file, through
     * transfer->queue, into files that the caller has opened. So files can share extents and be
     * recycled, bulk parts can be left to the caller, and a rank can read for others. */
    bool is_by_position;
    /* Set if any thread may call the engine, including one that the library has started. */
    bool is_for_any_thread;
    /* Returns DCP_OK if the engine can be used here; NULL: it can be used everywhere. */
    int (*check)(dcp_error *err);
    /* Opens a file for writing. */
    int (*open)(const char *path, struct io_file *out, dcp_error *err);
    /* Move all pieces between their boxes and the files, add pieces and replicas to their
     * checksums, and end with move_transfer_finish. Collective. */
    int (*to_file)(struct move_transfer *t, dcp_error *err);
    int (*from_files)(struct move_transfer *t, dcp_error *err);
} move_engine;

/* The table (engines.c); NULL ends it. The first row serves all file systems that no row lists. */
extern const move_engine *const move_engines[];

/* Returns the engine's row; NULL if there is none, as for DCP_ENGINE_AUTO. */
const move_engine *move_engine_row(dcp_engine engine);

/* Returns DCP_OK if the engine exists and can be used here, or is DCP_ENGINE_AUTO. */
int move_engine_check(dcp_engine wanted, dcp_error *err);

/* Returns the row of `wanted`. For DCP_ENGINE_AUTO, returns the engine that suits the file system
 * of `dir`, as this rank sees it; or the first row, if that engine cannot be used. */
const move_engine *move_engine_choose(dcp_engine wanted, const char *dir);
/* Returns the engine for files that some ranks do not see, so that other ranks read for them. */
const move_engine *move_engine_for_scattered(void);
/* Returns the engine that suits a file system of the type `type` (statfs' f_type). */
const move_engine *move_engine_for_type(uint64_t type);
