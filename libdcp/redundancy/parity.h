/* The redundancy file. It contains a header, which describes all files of the group, then checksums
 * and strips. docs/format.md has the byte offsets. */
#pragma once

#include <stdbool.h>

#include "redundancy/groups.h"
#include "redundancy/stripes.h"

/* The callbacks for a check of redundancy files. */
typedef struct redundancy_reader {
    void *ctx;
    void (*on_damage)(void *ctx, const char *line); /* one line per damaged place */
    /* Reports that `bytes` more bytes were read. A result other than DCP_OK ends the check. May be
     * NULL. */
    int (*on_read)(void *ctx, uint64_t bytes, dcp_error *err);
} redundancy_reader;

typedef struct parity_member {
    uint64_t number; /* its shard's number */
    uint64_t bytes, crc;
} parity_member;

typedef struct parity_header {
    code_group group;
    int member; /* the member whose file this is */
    int world;  /* number of shards of the step */
    uint64_t step;
    uint64_t set;       /* equal in all redundancy files of one save */
    uint64_t table_crc; /* checksum of the padded table of the payload's blocks */
    parity_member members[REDUNDANCY_MAX_MEMBERS];
} parity_header;

/* Return the size of a strip of stripe `number`, and the size of all redundant strips of a
 * member. */
uint64_t redundancy_parity_strip_bytes(const parity_header *h, int number);
uint64_t redundancy_parity_payload_bytes(const parity_header *h, int member);

/* Returns the offset of the payload, which follows the header and the table. */
uint64_t redundancy_parity_payload_start(const parity_header *h, int member);
uint64_t redundancy_parity_file_bytes(const parity_header *h, int member);

/* Returns a member's contribution to `set`, which is the XOR of all contributions. */
uint64_t redundancy_parity_set_part(const parity_member *member);

/* Write into name[64]: "shard-RRRRR-of-NNNNN.h5", or the redundancy file's name. */
void redundancy_parity_shard_name(char *name, uint64_t number, int world);
void redundancy_parity_file_name(char *name, redundancy_kind kind, uint64_t number, int world);

/* Parses the name of a shard (*kind is then REDUNDANCY_NONE) or of a redundancy file. Returns false
 * for any other name. */
bool redundancy_parity_name_read(const char *name, redundancy_kind *kind, uint64_t *number,
                                 int *world);

void redundancy_parity_header_encode(const parity_header *h, unsigned char *out /* PAGE_BYTES */);

/* Checks everything in the header that can be checked without other files. */
int redundancy_parity_header_decode(const unsigned char *in, const char *path, parity_header *out,
                                    dcp_error *err);

/* Opens the redundancy file `path`, whose name in its folder is `name`, and checks its header
 * against this name and the file's length. *fd is open on success. */
int redundancy_parity_open(const char *path, const char *name, parity_header *out, int *fd,
                           dcp_error *err);

/* Reads the table and the payload; reports each damaged block to `reader`. */
int redundancy_parity_check_payload(const parity_header *h, int fd, const char *path,
                                    const redundancy_reader *reader, dcp_error *err);

/* Reads every byte of the redundancy files in a step's folder, and checks that names, step and
 * headers agree. It is not an error if a folder has no redundancy files. Not collective. Reports
 * damage to `reader`, and returns other failures. */
int redundancy_parity_verify(const char *folder, const redundancy_reader *reader, dcp_error *err);

/* Returns the total size of the redundancy files in a folder; 0 if the folder can't be read. */
uint64_t redundancy_parity_bytes(const char *folder);
