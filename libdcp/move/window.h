/* Which windows of the addresses are moved. */
#pragma once

#include "move/domain.h"

/* Collective: cuts the addresses below `end`, and finds the windows of which this rank's group
 * takes part; where there are several groups, move_routes_list (talks.h) lists them. Where ranks
 * read apart, those of this rank.
 * `reader_ranges`: NULL, or an address a rank and `end`. `to_file`: the direction. */
int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, int to_file, move_windows *out,
                      dcp_error *err);
void move_windows_free(move_windows *w);
