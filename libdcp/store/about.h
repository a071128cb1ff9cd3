/* about.json: who wrote a step, on how many ranks, when, how fast. Not part of the state.
 *
 * A JSON object; its last member is "crc64": 16 lower-case hex digits, the CRC-64/XZ of the whole
 * file with these digits replaced by '0'. So one flipped, missing or surplus byte shows. */
#ifndef DCP_STORE_ABOUT_H
#define DCP_STORE_ABOUT_H

#include "dcp/error.h"

/* Writes and fsyncs dir/about.json: tool, version, time (ISO 8601 UTC), host, pid, ranks, then the
 * members of the object `members_json` (may be NULL), then crc64. */
int about_write(const char *dir, const char *tool, int ranks, const char *members_json,
                dcp_error *err);

/* DCP_ERR_CORRUPT where the checksum or the syntax is wrong, DCP_ERR_NOT_FOUND where it is missing.
 */
int about_check(const char *dir, dcp_error *err);

#endif
