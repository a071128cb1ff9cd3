/* Failure domains: ranks that are lost together, with the files in their directories. A host, or
 * what the caller names. Redundancy is between them. */
#pragma once

#include "store/store.h"

struct json_t;

/* Collective, of a private store whose leaders are known: fills store->domain and store->domains.
 *   name  of this rank's domain; NULL: its host is one
 * DCP_ERR_ARG: some ranks name one and others don't; a name is empty; ranks with one directory name
 * different ones. */
int store_domains_find(dcp_store *store, const char *name, dcp_error *err);

/* The members of about.json that say what a save into the store survives; of a shared store none.
 * 0, or -1 where memory is short. */
int store_domains_describe(const dcp_store *store, struct json_t *about);
