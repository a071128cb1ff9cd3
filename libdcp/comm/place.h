/* Which host a rank is on. Ranks on one host share memory, and are lost together.
 *
 * A host is a kernel that runs (its boot id) and a /dev/shm (its device number), so that containers
 * on one machine are hosts of their own unless they share that. Or it is what somebody names: the
 * caller by dcp_comm_set_host or by its table's host_of, or DCP_HOST in the environment. */
#pragma once

#define COMM_PLACE_BYTES 128

/* Equal, byte for byte, on the ranks of one host. */
typedef struct comm_place {
    char host[COMM_PLACE_BYTES]; /* for people as well: "host n7", "boot 5b1c..., /dev/shm 26" */
} comm_place;

/* The boot's UUID, or where that can't be read the host's name. */
typedef struct comm_boot_id {
    char text[65];
} comm_boot_id;

void comm_place_boot(comm_boot_id *out);

/* That of the machine, or container, that this process runs on, whatever somebody names it. */
void comm_place_machine(comm_place *out);

/* This process's. */
void comm_place_find(comm_place *out);

/* That of a host which somebody named; a name of any length. */
void comm_place_name(comm_place *out, const char *name);

/* That of a host which a caller's table tells of, by the lowest of its ranks. */
void comm_place_of_rank(comm_place *out, int rank);

int comm_place_is_same(const comm_place *a, const comm_place *b);
