/* User blocks, indexes, blocks and meta of one to four files, and joining them: everything that a
 * load believes.
 *
 * Everything is guarded by checksums that no mutation would match, so they are recomputed over the
 * mutated data. An input: a byte of switches, the number of files minus one, then for each file the
 * first 120 bytes of its user block, index, blocks and meta. */
#include "core/bytes.h"
#include "core/crc64.h"
#include "format/folder.h"
#include "fuzz.h"
#include "reader/checkpoint.h"

enum { HEAD = 120, AT_VERSION = 8, AT_FILE = 16, AT_ROWS = 24, AT_ROW = 32, TABLES = 40 };
enum { BAD_CRC = 1, BAD_MAGIC = 2, OWN_SIZES = 4, SHARDED = 8 }; /* switches */

static uint64_t table_bytes(const unsigned char *head, int table) {
    return core_get_u64(head + TABLES + 24 * table + 8);
}

/* Corrects the sizes so that they add up: the index gets its rows, meta the rest. */
static void mend_sizes(unsigned char *head, uint64_t left, int last) {
    uint64_t index = core_get_u64(head + AT_ROWS) * core_get_u64(head + AT_ROW);
    if (index > left) index = left;
    uint64_t blocks = table_bytes(head, 1) / 8 * 8;
    if (blocks > left - index) blocks = (left - index) / 8 * 8;
    left -= index + blocks;
    core_put_u64(head + TABLES + 8, index);
    core_put_u64(head + TABLES + 24 + 8, blocks);
    if (last || table_bytes(head, 2) > left) core_put_u64(head + TABLES + 48 + 8, left);
}

static void mend_sums(unsigned char *packed, const unsigned char *body, uint64_t bytes) {
    unsigned char *head = packed + 8;
    for (int t = 0; t < 3; t++) {
        uint64_t n = table_bytes(head, t);
        if (n > bytes) return;
        core_put_u64(head + TABLES + 24 * t + 16, core_crc64(body, n));
        body += n;
        bytes -= n;
    }
    core_put_u64(head + USERBLOCK_BYTES - 8, core_crc64(head, USERBLOCK_BYTES - 8));
}

/* Makes one file from the input, packed as by format_tables_pack. */
static unsigned char *take_file(const uint8_t **data, size_t *size, int how, int last,
                                uint64_t *bytes) {
    if (*size < HEAD) return NULL;
    unsigned char head[USERBLOCK_BYTES] = {0};
    memcpy(head, *data, HEAD);
    *data += HEAD;
    *size -= HEAD;
    if (!(how & BAD_MAGIC)) {
        memcpy(head,
               "\x89"
               "DCP\r\n\x1a\n",
               8);
        core_put_u32(head + AT_VERSION, FORMAT_VERSION);
    }
    uint64_t body = *size;
    if (!(how & OWN_SIZES)) {
        mend_sizes(head, *size, last);
        body = table_bytes(head, 0) + table_bytes(head, 1) + table_bytes(head, 2);
    }
    *bytes = 8 + USERBLOCK_BYTES + body;
    unsigned char *packed = malloc(*bytes);
    PROMISE(packed);
    core_put_u64(packed, core_get_u64(head + AT_FILE));
    memcpy(packed + 8, head, sizeof head);
    memcpy(packed + 8 + sizeof head, *data, body);
    *data += body;
    *size -= body;
    if (!(how & BAD_CRC)) mend_sums(packed, packed + 8 + sizeof head, body);
    return packed;
}

/* Datasets lie inside their file, ascend by path, and have their blocks. */
static void check_file(const format_file *file) {
    uint64_t blocks = 0;
    for (uint64_t i = 0; i < file->ub.rows; i++) {
        const format_row *r = &file->rows[i];
        PROMISE(!i || strcmp(file->rows[i - 1].tensor.path, r->tensor.path) < 0);
        PROMISE(r->offset <= file->ub.file_bytes && r->bytes <= file->ub.file_bytes - r->offset);
        PROMISE(r->first_block == blocks && !strstr(r->tensor.path, "/../"));
        blocks += format_index_blocks(r->bytes);
        (void)format_index_join_blocks(file->crcs + r->first_block, r->bytes);
    }
    PROMISE(blocks == file->ub.blocks.bytes / 8);
}

/* A table that was accepted is the one that a writer makes of its rows: nothing is hidden in it. */
static void check_same_bytes(const format_file *file, const unsigned char *index) {
    uint64_t path_bytes = format_index_path_bytes(file->rows, file->ub.rows);
    PROMISE(file->ub.row_bytes == format_index_row_bytes(path_bytes, file->ub.layout));
    unsigned char *again = malloc(file->ub.index.bytes + 1);
    PROMISE(again);
    format_index_encode(file->rows, file->ub.rows, path_bytes, file->ub.layout, again);
    PROMISE(!memcmp(again, index, file->ub.index.bytes));
    free(again);
}

static int take_files(dcp_checkpoint *ckpt, const uint8_t *data, size_t size, int how) {
    int status = DCP_OK;
    for (size_t i = 0; i < ckpt->n_files && !status; i++) {
        format_file *file = &ckpt->files[i];
        uint64_t bytes;
        dcp_error err = {0};
        unsigned char *packed = take_file(&data, &size, how, i + 1 == ckpt->n_files, &bytes);
        if (!packed) return DCP_ERR_CORRUPT;
        file->path = format_folder_path(ckpt->path, ckpt->layout, i, ckpt->n_files);
        status = format_tables_unpack(file, packed, bytes, 0, &err);
        PROMISE(err.status == status && !*err.message == !status);
        if (!status) {
            check_file(file);
            check_same_bytes(file, packed + 8 + USERBLOCK_BYTES);
        }
        free(packed);
    }
    return status;
}

static void check_tensors(const dcp_checkpoint *ckpt) {
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const reader_tensor *t = &ckpt->tensors[i];
        PROMISE(reader_checkpoint_lookup(ckpt, t->tensor.path) == t);
        uint64_t bytes = 0;
        for (size_t k = 0; k < t->n_datasets; k++) bytes += t->datasets[k].row->bytes;
        PROMISE(bytes == t->bytes);
    }
    PROMISE(ckpt->json && strlen(ckpt->json) >= 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    int how = data[0];
    dcp_error err = {0};
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    PROMISE(ckpt);
    ckpt->layout = how & SHARDED ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL;
    ckpt->n_files = how & SHARDED ? data[1] % 4 + 1 : 1;
    ckpt->path = strdup("d/step-00000003");
    ckpt->files = calloc(ckpt->n_files, sizeof *ckpt->files);
    PROMISE(ckpt->path && ckpt->files);
    for (size_t i = 0; i < ckpt->n_files; i++) ckpt->files[i] = format_file_of(NULL);
    if (!take_files(ckpt, data + 2, size - 2, how)) {
        int status = reader_join_files(ckpt, &err);
        PROMISE(err.status == status && !*err.message == !status);
        if (!status) check_tensors(ckpt);
    }
    dcp_checkpoint_close(ckpt);
    return 0;
}
