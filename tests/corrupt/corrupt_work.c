/* Files with valid tables that are made to cost their readers much more work or memory than their
 * size justifies. Each is read or refused within memory and processor time that grow with the size
 * of its tables. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bounded.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "damage.h"
#include "dcp/dcp.h"
#include "format/index.h"

enum {
    STRIPS = 300000,
    PROCESSOR_SECONDS = 60, /* the work takes about one second; without a limit, minutes or hours */
    OBJECTS = 5 << 20,
};

static char root[] = "/tmp/dcp-work-XXXXXX";
static char step[64], path[96];

static int make_root(void **state) {
    (void)state;
    if (!mkdtemp(root)) return -1;
    snprintf(step, sizeof step, "%s/step-00000003", root);
    return mkdir(step, 0700);
}

static int remove_root(void **state) {
    (void)state;
    remove_folder_tree(root);
    return 0;
}

/* Writes a file with these rows, with checksums of blocks that are not those of zeros, and with
 * that meta; the data are holes. The tables' checksums are correct. */
static void write_file(const char *name, dcp_layout layout, const format_row *rows, size_t n,
                       uint64_t data_bytes, const char *meta) {
    uint64_t path_bytes = format_index_path_bytes(rows, n), blocks = 0, meta_bytes = strlen(meta);
    for (size_t i = 0; i < n; i++) blocks += format_index_blocks(rows[i].bytes);
    format_userblock ub = {
        .layout = layout, .rows = n, .row_bytes = format_index_row_bytes(path_bytes, layout)};
    ub.index =
        (format_range){core_round_to_pages(USERBLOCK_BYTES + data_bytes), n * ub.row_bytes, 0};
    ub.blocks =
        (format_range){core_round_to_pages(ub.index.offset + ub.index.bytes), 8 * blocks, 0};
    ub.meta =
        (format_range){core_round_to_pages(ub.blocks.offset + ub.blocks.bytes), meta_bytes, 0};
    ub.file_bytes = core_round_to_pages(ub.meta.offset + meta_bytes);
    unsigned char *tables = calloc(1, ub.file_bytes - ub.index.offset), block[USERBLOCK_BYTES];
    assert_non_null(tables);
    format_index_encode(rows, n, path_bytes, layout, tables);
    memset(tables + (ub.blocks.offset - ub.index.offset), 1, ub.blocks.bytes);
    memcpy(tables + (ub.meta.offset - ub.index.offset), meta, meta_bytes);
    format_range *ranges[] = {&ub.index, &ub.blocks, &ub.meta};
    for (int t = 0; t < 3; t++)
        ranges[t]->crc =
            core_crc64(tables + (ranges[t]->offset - ub.index.offset), ranges[t]->bytes);
    format_userblock_encode(&ub, block);
    snprintf(path, sizeof path, "%s/%s", step, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
    assert_int_equal(fseeko(file, (off_t)ub.index.offset, SEEK_SET), 0);
    assert_int_equal(fwrite(tables, 1, ub.file_bytes - ub.index.offset, file),
                     ub.file_bytes - ub.index.offset);
    assert_int_equal(fclose(file), 0);
    free(tables);
}

/* Makes the largest file of holes that the file system permits; returns its size. */
static uint64_t make_hole(void) {
    snprintf(path, sizeof path, "%s/state.h5", step);
    int fd = open(path, O_WRONLY | O_CREAT, 0600), shift = 48;
    while (shift > 32 && ftruncate(fd, (off_t)1 << shift)) shift--;
    assert_int_equal(close(fd), 0);
    return 1ULL << shift;
}

static void put(FILE *file, uint64_t offset, const void *data, size_t bytes) {
    assert_int_equal(fseeko(file, (off_t)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
}

/* Writes a file of `bytes` bytes with one tensor that fills it, or none, and with the checksums of
 * its blocks in a hole; meta at the end. */
static void write_hole(uint64_t bytes, int has_tensor) {
    static const char meta[] = "{\"format\":1,\"step\":3}";
    unsigned char block[USERBLOCK_BYTES], index[USERBLOCK_BYTES];
    uint64_t blocks = bytes / BLOCK_BYTES, data = 3 * PAGE_BYTES + core_round_to_pages(8 * blocks);
    format_row row = {.tensor = {"/model/w", DCP_U8, 1, {(blocks - 999) * BLOCK_BYTES}}};
    row.offset = data;
    row.bytes = row.tensor.shape[0];
    blocks = has_tensor ? format_index_blocks(row.bytes) : 0;
    format_userblock ub = {.rows = (uint64_t)has_tensor,
                           .row_bytes = format_index_row_bytes(16, DCP_LAYOUT_GLOBAL),
                           .file_bytes = bytes};
    format_index_encode(&row, ub.rows, 16, DCP_LAYOUT_GLOBAL, index);
    ub.index = (format_range){PAGE_BYTES, ub.rows * ub.row_bytes, 0};
    ub.index.crc = core_crc64(index, ub.index.bytes);
    ub.blocks = (format_range){3 * PAGE_BYTES, 8 * blocks, core_crc64_finish(0, 8 * blocks)};
    ub.meta = (format_range){2 * PAGE_BYTES, strlen(meta), core_crc64(meta, strlen(meta))};
    format_userblock_encode(&ub, block);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    put(file, 0, block, sizeof block);
    put(file, ub.index.offset, index, ub.index.bytes);
    put(file, ub.meta.offset, meta, strlen(meta));
    assert_int_equal(fclose(file), 0);
}

/* The result of opening the file, and if that succeeds, of reading all elements; under the
 * limits. */
typedef struct reading {
    int status;
    const char *message; /* a part of it; NULL: none */
    uint64_t elements;   /* of /model/w, in bytes; 0: nothing is read */
} reading;

static int read_whole(dcp_checkpoint *ckpt, uint64_t elements, dcp_error *err) {
    const dcp_tensor *t = dcp_checkpoint_find(ckpt, "/model/w");
    unsigned char *data = malloc(elements);
    if (!t || !data) return DCP_ERR_NO_MEMORY;
    const dcp_box whole = dcp_box_whole(t);
    dcp_state *state = NULL;
    int status = dcp_state_create(&state, err);
    if (!status) status = dcp_state_add(state, t, &whole, data, err);
    if (!status) status = dcp_load(ckpt, state, NULL, err);
    dcp_state_destroy(state);
    free(data);
    return status;
}

static int open_and_read(void *ctx) {
    const reading *want = ctx;
    const struct rlimit seconds = {PROCESSOR_SECONDS, PROCESSOR_SECONDS};
    dcp_comm *comm;
    dcp_checkpoint *ckpt = NULL;
    dcp_error err = {0};
    if (setrlimit(RLIMIT_CPU, &seconds) || dcp_comm_self(&comm, NULL)) return 2;
    int status = dcp_checkpoint_open(comm, step, &ckpt, &err);
    if (!status && want->elements) status = read_whole(ckpt, want->elements, &err);
    dcp_checkpoint_close(ckpt);
    dcp_comm_destroy(comm);
    if (status == want->status && (!want->message || strstr(err.message, want->message))) return 0;
    fprintf(stderr, "status %d, expected %d: %s\n", status, want->status, err.message);
    return 1;
}

static void expect(reading want) {
    assert_int_equal(under_limits(open_and_read, &want), 0);
    assert_int_equal(unlink(path), 0);
}

#define SHARD "shard-00000-of-00001.h5"
#define META "{\"format\":1,\"step\":3%s}"
#define SHARD_META ",\"shard\":{\"rank\":0,\"state_id\":\"0000000000000000\",\"world\":1}"

/* A column in one box, and next to it boxes of two rows each: in both dimensions some box is long.
 * `moved`: one box overlaps its neighbour by a row. */
static void write_strips(int moved) {
    static format_row rows[STRIPS];
    static dcp_box boxes[STRIPS];
    static char names[STRIPS][24], meta[256];
    uint64_t height = 2 * (STRIPS - 1), at = USERBLOCK_BYTES;
    uint64_t sum = core_crc64("\0\0\0\0", 4), longest = 0;
    unsigned char *column = calloc(1, height);
    assert_non_null(column);
    longest = core_crc64(column, height);
    free(column);
    for (size_t i = 0; i < STRIPS; i++) {
        boxes[i] = i ? (dcp_box){{2 * (i - 1), 1}, {2, 2}} : (dcp_box){{0, 0}, {height, 1}};
        snprintf(names[i], sizeof names[i], i ? "/model/w@%06zu" : "/model/w", i);
        rows[i] = (format_row){.tensor = {names[i], DCP_U8, 2, {height, 3}},
                               .box = &boxes[i],
                               .offset = at,
                               .bytes = boxes[i].count[0] * boxes[i].count[1],
                               .crc = i ? sum : longest};
        at += rows[i].bytes;
    }
    if (moved) boxes[STRIPS - 1].start[0]--;
    snprintf(meta, sizeof meta, META, SHARD_META);
    write_file(SHARD, DCP_LAYOUT_SHARDED, rows, STRIPS, at - USERBLOCK_BYTES, meta);
}

static void strips_beside_a_long_box(void **state) {
    (void)state;
    write_strips(0);
    expect((reading){.status = DCP_ERR_CORRUPT, /* the blocks' checksums are not those of zeros */
                     .message = "what was read differs",
                     .elements = 6ULL * (STRIPS - 1)});
    write_strips(1);
    expect(
        (reading){DCP_ERR_CORRUPT, "tensor /model/w: the shards don't cover it exactly once", 0});
}

/* A file that claims to be huge costs what it contains, not what it claims. */
static void holes(void **state) {
    (void)state;
    write_hole(make_hole(), 1);
    expect((reading){DCP_ERR_CORRUPT, "state.h5: blocks: checksums are missing", 0});
    write_hole(make_hole(), 0);
    expect((reading){DCP_ERR_CORRUPT, "of the file belong to no dataset or table", 0});
}

/* 15 MB of text, 1.8 GB as a tree. */
static void meta_of_empty_objects(void **state) {
    (void)state;
    static char member[3 * OBJECTS + 32], meta[sizeof member + 64];
    char *at = member + sprintf(member, ",\"a\":[{}");
    for (size_t i = 1; i < OBJECTS; i++, at += 3) memcpy(at, ",{}", 3);
    memcpy(at, "]", 2);
    snprintf(meta, sizeof meta, META, member);
    write_file("state.h5", DCP_LAYOUT_GLOBAL, NULL, 0, 0, meta);
    expect((reading){DCP_ERR_CORRUPT, "5242884 values, but at most 1048576", 0});
}

static int save_many_values(void *ctx) {
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    dcp_comm *comm = NULL;
    dcp_error err = {0};
    if (dcp_comm_self(&comm, NULL) || dcp_state_create(&state, NULL) ||
        dcp_store_open(comm, root, NULL, &store, NULL))
        return 2;
    int status = dcp_save(store, 4, state, ctx, NULL, NULL, &err);
    dcp_store_close(store);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    if (status == DCP_ERR_ARG && strstr(err.message, "at most 1048576")) return 0;
    fprintf(stderr, "status %d: %s\n", status, err.message);
    return 1;
}

/* An object with an array of `count` times the value. */
static void write_array(char *json, const char *value, size_t count) {
    char *at = json + sprintf(json, "{\"a\":[%s", value);
    for (size_t i = 1; i < count; i++) at += sprintf(at, ",%s", value);
    memcpy(at, "]}", 3);
}

/* More values than a load would accept. The case with one value more than a caller may pass is
 * parsed, too, so its values are those that cost the least on machines where each page of memory is
 * expensive. */
static void saves_of_many_values(void **state) {
    (void)state;
    static char json[3 * OBJECTS + 32];
    write_array(json, "{}", OBJECTS);
    assert_int_equal(under_limits(save_many_values, json), 0);
    write_array(json, "0", (1 << 20) - 1);
    assert_int_equal(under_limits(save_many_values, json), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_beside_a_long_box),
        cmocka_unit_test(holes),
        cmocka_unit_test(meta_of_empty_objects),
        cmocka_unit_test(saves_of_many_values),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
