/* How a store's files are striped, where it lies on a Lustre file system: see io/striping.h. */
#pragma once

#include "store/store.h"

/* DCP_ERR_ARG: the store's options ask for what cannot be. */
int store_striped_check(const dcp_store *store, dcp_error *err);

/* Not collective, once the store's directory is open: rank 0 logs where what was asked for is
 * ignored. */
void store_striped_tell(const dcp_store *store);

/* io_create of a file of the store, which one rank calls: on Lustre with its layout. It is written
 * by `hosts` hosts; 0: by this rank alone. A recycled file never gets here, and keeps its layout:
 * it is this open store's own, of the same size, so the layout is the same. */
int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err);
