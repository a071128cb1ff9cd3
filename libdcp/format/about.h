/* about.json: who wrote a step, on how many ranks, when, and how fast. It is not part of the state.
 *
 * The file is a JSON object whose last member is "crc64": 16 lower-case hex digits, the CRC-64/XZ
 * of the whole file with these digits replaced by '0'. So any flipped, missing or surplus byte is
 * detected. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dcp/error.h"

/* Writes and syncs dir/about.json: tool, version, time (ISO 8601 UTC), host, pid, ranks, then the
 * members of the object `members_json` (may be NULL), then crc64. */
int format_about_write(const char *dir, const char *tool, int ranks, const char *members_json,
                       dcp_error *err);

struct json_t;

/* Reads and checks the file; the caller releases *about. Returns the same statuses as
 * format_about_check. */
int format_about_parse(const char *dir, struct json_t **about, dcp_error *err);
/* Returns DCP_ERR_CORRUPT if `about` names another step. */
int format_about_check_step(const char *dir, const struct json_t *about, uint64_t step,
                            dcp_error *err);

/* Makes the member "shards" for the about.json of a private store's step. It lists the numbers of
 * the shards that are in the folder. */
int format_about_shards(const char *folder, int world, struct json_t **out, dcp_error *err);

/* Sets *is_part to 1 if about.json says that the folder holds only a part of the step's shards, and
 * marks the shards that it holds in kept[world]. If about.json is missing or damaged, *is_part is
 * 0. */
int format_about_is_part(const char *folder, int world, unsigned char *kept, bool *is_part,
                         dcp_error *err);

/* Returns DCP_ERR_CORRUPT if the checksum or the syntax is wrong, or if the file names a step
 * other than `step` (may be NULL); DCP_ERR_NOT_FOUND if the file is missing. */
int format_about_check(const char *dir, const uint64_t *step, dcp_error *err);
