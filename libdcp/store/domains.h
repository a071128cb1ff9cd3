/* Failure domains, and the hosts of ranks. */
#pragma once

#include "store/store.h"

/* The hosts of the ranks that save into a store. */

#define STORE_HOST_NAME 68 /* of a host, with its end, as dcp_report has it */

/* Collective, once: how many there are, and on rank 0 each rank's, by name. */
int store_host_names_find(dcp_store *store, dcp_error *err);

/* The name of that rank's host, on rank 0; else "". */
const char *store_host_names_of(const dcp_store *store, int rank);

/* Failure domains: ranks that are lost together, with the files in their directories. A host, or
 * what the caller names. Redundancy is between them. */

struct json_t;

/* Collective, of a private store whose leaders are known: fills store->domain and store->domains.
 *   name  of this rank's domain; NULL: its host is one
 * DCP_ERR_ARG: some ranks name one and others don't; a name is empty; ranks with one directory name
 * different ones. */
int store_domains_find(dcp_store *store, const char *name, dcp_error *err);

/* The members of about.json that say what a save into the store survives; of a shared store none.
 * 0, or -1 where memory is short. */
int store_domains_describe(const dcp_store *store, struct json_t *about);
