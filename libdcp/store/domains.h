/* Failure domains, and the hosts of ranks. */
#pragma once

#include "store/store.h"

/* The hosts of the ranks that save into a store. */

#define STORE_HOST_NAME 68 /* size of a host's name, including the NUL, as in dcp_report */

/* Counts the hosts, and on rank 0 finds the name of each rank's host. Collective; called once. */
int store_host_names_find(dcp_store *store, dcp_error *err);

/* On rank 0, returns the name of the host of rank `rank`; on other ranks, returns "". */
const char *store_host_names_of(const dcp_store *store, int rank);

/* Failure domains: ranks that can be lost together, with the files in their directories. A domain
 * is a host, unless the caller names the domains. Redundancy spans domains. */

struct json_t;

/* Collective, for a private store whose leaders are known: fills in store->domain and
 * store->domains. `name` is the name of this rank's domain; NULL: its host. DCP_ERR_ARG: some ranks
 * name a domain and others don't; a name is empty; or ranks with the same directory name different
 * domains. */
int store_domains_find(dcp_store *store, const char *name, dcp_error *err);

/* Adds the members of about.json that state what a save into the store survives. Adds none for a
 * shared store. Returns 0, or -1 if memory is short. */
int store_domains_describe(const dcp_store *store, struct json_t *about);
