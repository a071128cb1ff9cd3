/* about.json: who wrote a step, on how many ranks, when, how fast. Not part of the state.
 *
 * A JSON object; its last member is "crc64": 16 lower-case hex digits, the CRC-64/XZ of the whole
 * file with these digits replaced by '0'. So one flipped, missing or surplus byte shows. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

/* Writes and fsyncs dir/about.json: tool, version, time (ISO 8601 UTC), host, pid, ranks, then the
 * members of the object `members_json` (may be NULL), then crc64. */
int format_about_write(const char *dir, const char *tool, int ranks, const char *members_json,
                       dcp_error *err);

struct json_t;

/* Reads and checks the file; the caller releases *about. Statuses as format_about_check's. */
int format_about_parse(const char *dir, struct json_t **about, dcp_error *err);
/* DCP_ERR_CORRUPT where it says to be of another step. */
int format_about_check_step(const char *dir, const struct json_t *about, uint64_t step,
                            dcp_error *err);

/* The member "shards" that about.json of a private store's step has: the numbers of those shards
 * that are in the folder. */
int format_about_shards(const char *folder, int world, struct json_t **out, dcp_error *err);

/* Whether about.json says that the folder keeps only a part of the step's shards, and which: marks
 * them in kept[world]. It does not where it is missing or damaged. */
int format_about_is_part(const char *folder, int world, unsigned char *kept, int *is_part,
                         dcp_error *err);

/* DCP_ERR_CORRUPT where the checksum or the syntax is wrong, or where it says to be of another step
 * than `step` (may be NULL), DCP_ERR_NOT_FOUND where it is missing.
 */
int format_about_check(const char *dir, const uint64_t *step, dcp_error *err);
