/* The redundancy file: a header that knows all files of the group, checksums, strips.
 * docs/format.md has the byte offsets. */
#pragma once

#include "redundancy/groups.h"
#include "redundancy/stripes.h"

/* What a check of redundancy files tells while it goes on. */
typedef struct redundancy_reader {
    void *ctx;
    void (*on_damage)(void *ctx, const char *line); /* a line for each */
    /* So many more were read; not DCP_OK ends the check. May be NULL. */
    int (*on_read)(void *ctx, uint64_t bytes, dcp_error *err);
} redundancy_reader;

typedef struct parity_member {
    uint64_t number; /* of its shard */
    uint64_t bytes, crc;
} parity_member;

typedef struct parity_header {
    code_group group;
    int member; /* whose file this is */
    int world;  /* shards of the step */
    uint64_t step;
    uint64_t set;       /* the same in all redundancy files of one save */
    uint64_t table_crc; /* of the padded table of the payload's blocks */
    parity_member members[REDUNDANCY_MAX_MEMBERS];
} parity_header;

/* Bytes of a strip of stripe number `number`, and of the redundant strips of a member. */
uint64_t redundancy_parity_strip_bytes(const parity_header *h, int number);
uint64_t redundancy_parity_payload_bytes(const parity_header *h, int member);

/* Where the payload begins, which also is the length of header and table. */
uint64_t redundancy_parity_payload_start(const parity_header *h, int member);
uint64_t redundancy_parity_file_bytes(const parity_header *h, int member);

/* A member's part in `set`, which is the XOR of all parts. */
uint64_t redundancy_parity_set_part(const parity_member *member);

/* "shard-RRRRR-of-NNNNN.h5", and the redundancy file's name, into name[64]. */
void redundancy_parity_shard_name(char *name, uint64_t number, int world);
void redundancy_parity_file_name(char *name, redundancy_kind kind, uint64_t number, int world);

/* Reads such a name back: 1, or 0 where it is none. *kind is REDUNDANCY_NONE for a shard. */
int redundancy_parity_name_read(const char *name, redundancy_kind *kind, uint64_t *number,
                                int *world);

void redundancy_parity_header_encode(const parity_header *h, unsigned char *out /* PAGE_BYTES */);

/* Checks everything that the header says of itself. */
int redundancy_parity_header_decode(const unsigned char *in, const char *path, parity_header *out,
                                    dcp_error *err);

/* Opens FOLDER's redundancy file `name`, reads its header and checks it against name and length.
 * *fd is open on success. */
int redundancy_parity_open(const char *path, const char *name, parity_header *out, int *fd,
                           dcp_error *err);

/* Reads table and payload; `reader` hears of each damaged block. */
int redundancy_parity_check_payload(const parity_header *h, int fd, const char *path,
                                    const redundancy_reader *reader, dcp_error *err);

/* Not collective. Reads the redundancy files in the folder of a step: every byte of them, and that
 * names, step and headers agree. A folder without such files is fine. Returns failures to read. */
int redundancy_parity_verify(const char *folder, const redundancy_reader *reader, dcp_error *err);

/* Bytes of the redundancy files in a folder, 0 where it can't be read. */
uint64_t redundancy_parity_bytes(const char *folder);
