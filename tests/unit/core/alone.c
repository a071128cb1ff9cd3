/* The core links without MPI and HDF5: this program links only the core, ISA-L and jansson. */
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/json.h"
#include "core/state_dict.h"

int main(void) {
    dcp_state *state = NULL;
    dcp_tensor t = {"/model/w", DCP_F32, 2, {7, 3}};
    cover_box halves[] = {{.box = dcp_box_chunk(&t, 0, 2), .rank = 0},
                          {.box = dcp_box_chunk(&t, 1, 2), .rank = 1}};
    size_t first, second;
    float data[21] = {0};
    int ok = core_crc64("123456789", 9) == 0x995dc9bbdf1939faULL &&
             core_cover_check(2, t.shape, halves, 2, &first, &second) == COVER_EXACT &&
             dcp_state_create(&state, NULL) == DCP_OK &&
             dcp_state_add(state, &t, NULL, data, NULL) == DCP_OK &&
             dcp_state_local_bytes(state) == 84;
    dcp_state_destroy(state);
    return ok ? 0 : 1;
}
