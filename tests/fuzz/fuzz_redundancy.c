/* Headers of redundancy files, with a corrected checksum, and names of such files. An input: the
 * header's bytes up to the trailing zeros; it is also read as a name. */
#include "core/bytes.h"
#include "core/crc64.h"
#include "format/index.h"
#include "fuzz.h"
#include "redundancy/groups.h"
#include "redundancy/parity.h"

#define AT_CRC (PAGE_BYTES - 8)

/* Sizes do not overflow, and every strip belongs to a member. */
static void check_group(const parity_header *h) {
    const code_group *g = &h->group;
    code_strip strips[REDUNDANCY_MAX_MEMBERS + 1];
    int n = redundancy_code_strips(g);
    PROMISE(n >= 2 && n <= g->members && redundancy_code_data_strips(g) >= 1 &&
            redundancy_code_data_strips(g) < n);
    for (int m = 0; m < g->members; m++) {
        PROMISE(redundancy_parity_strip_bytes(h, m) <= 1ULL << 60);
        PROMISE(redundancy_parity_payload_bytes(h, m) < redundancy_parity_file_bytes(h, m));
        redundancy_code_stripe(g, m, strips);
        for (int s = 0; s < n; s++)
            PROMISE(strips[s].member >= 0 && strips[s].member < g->members && strips[s].index >= 0);
    }
}

static void header(const uint8_t *data, size_t size) {
    unsigned char page[PAGE_BYTES] = {0};
    parity_header h;
    dcp_error err = {0};
    memcpy(page, data, size < AT_CRC ? size : AT_CRC);
    memcpy(page,
           "\x89"
           "DCR\r\n\x1a\n\1\0\0\0",
           12);
    core_put_u64(page + AT_CRC, core_crc64(page, AT_CRC));
    int status = redundancy_parity_header_decode(page, "file", &h, &err);
    PROMISE(err.status == status && !*err.message == !status);
    if (!status) check_group(&h);
}

static void name(const uint8_t *data, size_t size) {
    char text[64], again[64];
    redundancy_kind kind;
    uint64_t number;
    int world;
    if (size >= sizeof text) return;
    memcpy(text, data, size);
    text[size] = 0;
    if (!redundancy_parity_name_read(text, &kind, &number, &world)) return;
    PROMISE(world > 0 && number < (uint64_t)world);
    if (kind == REDUNDANCY_NONE)
        redundancy_parity_shard_name(again, number, world);
    else
        redundancy_parity_file_name(again, kind, number, world);
    PROMISE(!strcmp(text, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    header(data, size);
    name(data, size);
    return 0;
}
