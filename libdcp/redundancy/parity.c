/* A redundancy file consists of a header of one page, the table of its blocks' checksums padded to
 * whole pages, and the strips. Nothing in it is used until the header's own checksum is known to be
 * correct. */
#include "redundancy/parity.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/folder.h"
#include "format/index.h"
#include "io/entries.h"
#include "io/file.h"

static const unsigned char magic[8] = {0x89, 'D', 'C', 'R', '\r', '\n', 0x1a, '\n'};

#define VERSION 1
#define LARGEST_WORLD (1 << 20)
#define LARGEST_FILE ((uint64_t)1 << 56) /* so the sum of several sizes cannot overflow */

enum { /* byte offsets */
       AT_VERSION = 8,
       AT_KIND = 12,
       AT_MEMBERS = 16,
       AT_LOST = 20,
       AT_MEMBER = 24,
       AT_WORLD = 28,
       AT_STEP = 32,
       AT_SET = 40,
       AT_PAYLOAD = 48,
       AT_TABLE_CRC = 56,
       AT_TABLE = 256,
       MEMBER_BYTES = 24,
       AT_CRC = PAGE_BYTES - 8,
};

uint64_t redundancy_parity_strip_bytes(const parity_header *h, int number) {
    uint64_t longest = 0, segments = (uint64_t)redundancy_code_data_strips(&h->group);
    if (h->group.kind != REDUNDANCY_RS) return core_round_to_pages(h->members[number].bytes);
    for (int m = 0; m < h->group.members; m++)
        if (h->members[m].bytes > longest) longest = h->members[m].bytes;
    return core_round_to_pages((longest + segments - 1) / segments);
}

uint64_t redundancy_parity_payload_bytes(const parity_header *h, int member) {
    if (h->group.kind == REDUNDANCY_RS)
        return (uint64_t)h->group.lost * redundancy_parity_strip_bytes(h, 0);
    return redundancy_parity_strip_bytes(h, (member + h->group.members - 1) % h->group.members);
}

uint64_t redundancy_parity_payload_start(const parity_header *h, int member) {
    uint64_t blocks = (redundancy_parity_payload_bytes(h, member) + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return PAGE_BYTES + core_round_to_pages(blocks * 8);
}

uint64_t redundancy_parity_file_bytes(const parity_header *h, int member) {
    return redundancy_parity_payload_start(h, member) + redundancy_parity_payload_bytes(h, member);
}

static void put_member(unsigned char *at, const parity_member *member) {
    core_put_u64(at, member->number);
    core_put_u64(at + 8, member->bytes);
    core_put_u64(at + 16, member->crc);
}

uint64_t redundancy_parity_set_part(const parity_member *member) {
    unsigned char bytes[MEMBER_BYTES];
    put_member(bytes, member);
    return core_crc64(bytes, sizeof bytes);
}

void redundancy_parity_shard_name(char *name, uint64_t number, int world) {
    snprintf(name, 64, "shard-%05llu-of-%05d.h5", (unsigned long long)number, world);
}

void redundancy_parity_file_name(char *name, redundancy_kind kind, uint64_t number, int world) {
    snprintf(name, 64, "%s-%05llu-of-%05d.bin", kind == REDUNDANCY_RS ? "parity" : "partner",
             (unsigned long long)number, world);
}

bool redundancy_parity_name_read(const char *name, redundancy_kind *kind, uint64_t *number,
                                 int *world) {
    char word[8], again[64];
    unsigned long long n;
    if (sscanf(name, "%7[a-z]-%llu-of-%d", word, &n, world) != 3 || *world < 1 ||
        n >= (unsigned long long)*world)
        return false;
    *number = n;
    *kind = !strcmp(word, "shard")    ? REDUNDANCY_NONE
            : !strcmp(word, "parity") ? REDUNDANCY_RS
                                      : REDUNDANCY_PARTNER;
    if (*kind == REDUNDANCY_NONE)
        redundancy_parity_shard_name(again, n, *world);
    else
        redundancy_parity_file_name(again, *kind, n, *world);
    return !strcmp(name, again);
}

void redundancy_parity_header_encode(const parity_header *h, unsigned char *out) {
    memset(out, 0, PAGE_BYTES);
    memcpy(out, magic, sizeof magic);
    core_put_u32(out + AT_VERSION, VERSION);
    core_put_u32(out + AT_KIND, h->group.kind);
    core_put_u32(out + AT_MEMBERS, (uint32_t)h->group.members);
    core_put_u32(out + AT_LOST, (uint32_t)h->group.lost);
    core_put_u32(out + AT_MEMBER, (uint32_t)h->member);
    core_put_u32(out + AT_WORLD, (uint32_t)h->world);
    core_put_u64(out + AT_STEP, h->step);
    core_put_u64(out + AT_SET, h->set);
    core_put_u64(out + AT_PAYLOAD, redundancy_parity_payload_bytes(h, h->member));
    core_put_u64(out + AT_TABLE_CRC, h->table_crc);
    for (int m = 0; m < h->group.members; m++)
        put_member(out + AT_TABLE + m * MEMBER_BYTES, &h->members[m]);
    core_put_u64(out + AT_CRC, core_crc64(out, AT_CRC));
}

static bool is_group(const parity_header *h) {
    const code_group *g = &h->group;
    if (g->members < 2 || g->members > REDUNDANCY_MAX_MEMBERS) return false;
    if (h->world < g->members || h->world > LARGEST_WORLD) return false;
    if (h->member < 0 || h->member >= g->members || g->lost < 1 || g->lost >= g->members)
        return false;
    if (g->kind == REDUNDANCY_RS) return g->lost <= REDUNDANCY_MAX_LOST;
    return g->kind == REDUNDANCY_PARTNER && g->lost == 1;
}

static bool are_members(const parity_header *h) {
    for (int m = 0; m < h->group.members; m++) {
        if (h->members[m].number >= (uint64_t)h->world || h->members[m].bytes > LARGEST_FILE)
            return false;
        for (int other = 0; other < m; other++)
            if (h->members[other].number == h->members[m].number) return false;
    }
    return true;
}

static void read_fields(const unsigned char *in, parity_header *h) {
    *h = (parity_header){.group = {(redundancy_kind)core_get_u32(in + AT_KIND),
                                   (int)core_get_u32(in + AT_MEMBERS),
                                   (int)core_get_u32(in + AT_LOST)},
                         .member = (int)core_get_u32(in + AT_MEMBER),
                         .world = (int)core_get_u32(in + AT_WORLD),
                         .step = core_get_u64(in + AT_STEP),
                         .set = core_get_u64(in + AT_SET),
                         .table_crc = core_get_u64(in + AT_TABLE_CRC)};
}

int redundancy_parity_header_decode(const unsigned char *in, const char *path, parity_header *out,
                                    dcp_error *err) {
    parity_header h;
    if (memcmp(in, magic, sizeof magic))
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "header: not a redundancy file (wrong magic)");
    if (core_crc64(in, AT_CRC) != core_get_u64(in + AT_CRC))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "header: its checksum is wrong");
    if (core_get_u32(in + AT_VERSION) != VERSION)
        return core_fail_at(err, DCP_ERR_VERSION, path,
                            "the file has format version %u, but this library reads version %d: "
                            "use a newer library",
                            core_get_u32(in + AT_VERSION), VERSION);
    read_fields(in, &h);
    if (!is_group(&h))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "header: its group is not valid");
    for (int m = 0; m < h.group.members; m++) {
        const unsigned char *at = in + AT_TABLE + m * MEMBER_BYTES;
        h.members[m] =
            (parity_member){core_get_u64(at), core_get_u64(at + 8), core_get_u64(at + 16)};
    }
    if (!are_members(&h) ||
        core_get_u64(in + AT_PAYLOAD) != redundancy_parity_payload_bytes(&h, h.member))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "header: its members are not valid");
    *out = h;
    return DCP_OK;
}

/* Checks that the header belongs to the file that contains it. */
static int check_place(const parity_header *h, uint64_t bytes, const char *path, const char *name,
                       dcp_error *err) {
    char right[64];
    uint64_t right_bytes = redundancy_parity_file_bytes(h, h->member);
    redundancy_parity_file_name(right, h->group.kind, h->members[h->member].number, h->world);
    if (strcmp(name, right))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "header: it belongs to %s", right);
    if (bytes != right_bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "size: the file has %llu bytes, not %llu",
                            (unsigned long long)bytes, (unsigned long long)right_bytes);
    return DCP_OK;
}

int redundancy_parity_open(const char *path, const char *name, parity_header *out, int *fd,
                           dcp_error *err) {
    unsigned char page[PAGE_BYTES];
    uint64_t bytes;
    int status = io_open_regular(path, O_RDONLY, fd, &bytes, err);
    if (status) return status;
    status = io_read_plain(*fd, page, sizeof page, 0, path, err);
    if (!status) status = redundancy_parity_header_decode(page, path, out, err);
    if (!status) status = check_place(out, bytes, path, name, err);
    if (!status) return DCP_OK;
    close(*fd);
    *fd = -1;
    return status;
}

static void report_block(const redundancy_reader *reader, const char *path, const char *what) {
    char line[4300];
    snprintf(line, sizeof line, "%s: %s: damaged", path, what);
    reader->on_damage(reader->ctx, line);
}

static int check_block(const redundancy_reader *reader, int fd, const char *path, uint64_t number,
                       unsigned char *block, uint64_t bytes, uint64_t offset, uint64_t crc,
                       dcp_error *err) {
    char what[48];
    int status = io_read_plain(fd, block, bytes, offset, path, err);
    if (status) return status;
    snprintf(what, sizeof what, "block %llu of its strips", (unsigned long long)number);
    if (core_crc64(block, bytes) != crc) report_block(reader, path, what);
    return reader->on_read ? reader->on_read(reader->ctx, bytes, err) : DCP_OK;
}

int redundancy_parity_check_payload(const parity_header *h, int fd, const char *path,
                                    const redundancy_reader *reader, dcp_error *err) {
    uint64_t start = redundancy_parity_payload_start(h, h->member),
             table_bytes = start - PAGE_BYTES;
    uint64_t left = redundancy_parity_payload_bytes(h, h->member);
    unsigned char *table = malloc(table_bytes + BLOCK_BYTES);
    if (!table) return core_fail_memory(err, table_bytes + BLOCK_BYTES);
    int status = io_read_plain(fd, table, table_bytes, PAGE_BYTES, path, err);
    if (!status && core_crc64(table, table_bytes) != h->table_crc) {
        report_block(reader, path, "table of blocks");
        left = 0;
    }
    for (uint64_t b = 0; left && !status; b++) {
        uint64_t bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        status = check_block(reader, fd, path, b, table + table_bytes, bytes,
                             start + b * BLOCK_BYTES, core_get_u64(table + b * 8), err);
        left -= bytes;
    }
    free(table);
    return status;
}

static bool is_redundancy(const char *name) {
    uint64_t number;
    int world;
    redundancy_kind kind;
    return redundancy_parity_name_read(name, &kind, &number, &world) && kind != REDUNDANCY_NONE;
}

/* Opens a redundancy file. Reports damage to `reader`, and returns other failures. */
static int open_reported(const char *path, const char *name, const redundancy_reader *reader,
                         parity_header *h, int *fd, dcp_error *err) {
    dcp_error e;
    int status = redundancy_parity_open(path, name, h, fd, &e);
    if (status == DCP_ERR_CORRUPT || status == DCP_ERR_VERSION) {
        reader->on_damage(reader->ctx, e.message);
        return DCP_OK;
    }
    if (status && err) *err = e;
    return status;
}

/* A folder that is being verified. */
typedef struct folder_check {
    const char *folder;
    const redundancy_reader *reader;
} folder_check;

static int verify_file(const char *folder, const char *name, const redundancy_reader *reader,
                       dcp_error *err) {
    parity_header h;
    char *path, line[4300];
    uint64_t step;
    int fd = -1;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return core_fail_memory(err, 4096);
    int status = open_reported(path, name, reader, &h, &fd, err);
    if (fd < 0) goto free_path;
    if (format_name_read(folder, &step) && step != h.step) {
        snprintf(line, sizeof line, "%s: header: it belongs to step %llu", path,
                 (unsigned long long)h.step);
        reader->on_damage(reader->ctx, line);
    }
    status = redundancy_parity_check_payload(&h, fd, path, reader, err);
    close(fd);
free_path:
    free(path);
    return status;
}

static int verify_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const folder_check *c = ctx;
    (void)of;
    return is_redundancy(e->d_name) ? verify_file(c->folder, e->d_name, c->reader, err) : DCP_OK;
}

int redundancy_parity_verify(const char *folder, const redundancy_reader *reader, dcp_error *err) {
    folder_check c = {folder, reader};
    return io_visit_entries(AT_FDCWD, folder, folder, verify_entry, &c, err);
}

static int add_file_bytes(void *bytes, DIR *of, const struct dirent *e, dcp_error *err) {
    struct stat st;
    (void)err;
    if (is_redundancy(e->d_name) && !io_stat(dirfd(of), e->d_name, &st, NULL))
        *(uint64_t *)bytes += (uint64_t)st.st_size;
    return DCP_OK;
}

uint64_t redundancy_parity_bytes(const char *folder) {
    uint64_t bytes = 0;
    io_visit_entries(AT_FDCWD, folder, folder, add_file_bytes, &bytes, NULL);
    return bytes;
}
