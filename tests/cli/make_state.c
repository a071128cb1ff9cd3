/* make_state DIR STEP LAYOUT META: saves the tensors that stdin lists, one line each with path,
 * dtype, shape ("4,3"; "-" for a scalar) and a file with the elements. LAYOUT is global, or
 * sharded:N:D for N shards cut on dimension D, as torch.chunk does; META is a JSON object. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"

typedef struct part {
    dcp_tensor tensor;
    dcp_box box;
    const char *whole; /* the tensor's elements */
} part;

/* What is freed at the end. */
static void *kept[4096];
static size_t n_kept;

static void *keep(void *memory) {
    if (!memory || n_kept == sizeof kept / sizeof *kept) exit(2);
    return kept[n_kept++] = memory;
}

static int fail(const char *what) {
    fprintf(stderr, "make_state: %s\n", what);
    return -1;
}

static char *read_file(const char *path, uint64_t bytes) {
    char *data = keep(malloc(bytes + 1));
    FILE *file = fopen(path, "rb");
    int whole = file && fread(data, 1, bytes + 1, file) == bytes;
    if (file) fclose(file);
    return whole ? data : NULL;
}

static int parse(char *line, dcp_tensor *tensor, char **data) {
    char *path = strtok(line, " "), *dtype = strtok(NULL, " "), *shape = strtok(NULL, " ");
    char *file = strtok(NULL, " \n");
    if (!file || dcp_dtype_parse(dtype, &tensor->dtype)) return fail("a line is wrong");
    tensor->path = keep(strdup(path));
    for (char *n = strtok(shape, ","); n && strcmp(n, "-"); n = strtok(NULL, ","))
        tensor->shape[tensor->ndim++] = strtoull(n, NULL, 10);
    *data = read_file(file, dcp_tensor_bytes(tensor));
    return *data ? 0 : fail(file);
}

/* Element by element. */
static int read_part(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const part *p = ctx;
    uint64_t size = dcp_dtype_bytes(p->tensor.dtype);
    (void)err;
    for (uint64_t at = offset; at < offset + bytes; at++) {
        uint64_t rest = at / size, index = 0, stride = 1;
        for (uint32_t d = p->tensor.ndim; d-- > 0; stride *= p->tensor.shape[d]) {
            index += (p->box.start[d] + rest % p->box.count[d]) * stride;
            rest /= p->box.count[d];
        }
        ((char *)out)[at - offset] = p->whole[index * size + at % size];
    }
    return DCP_OK;
}

static int add_shards(dcp_state *state, const dcp_tensor *t, const char *data, int shards,
                      uint32_t dim) {
    for (int r = 0; r < shards; r++) {
        part *p = keep(malloc(sizeof *p));
        *p = (part){*t, dcp_box_whole(t), data};
        const dcp_tensor row = {.ndim = 1, .shape = {t->ndim > dim ? t->shape[dim] : 1}};
        const dcp_box cut = dcp_box_chunk(&row, r, shards);
        if (t->ndim > dim) {
            p->box.start[dim] = cut.start[0];
            p->box.count[dim] = cut.count[0];
        } else if (r) {
            memset(p->box.count, 0, sizeof p->box.count);
        }
        if (dcp_state_add_source(state, t, &p->box, read_part, p, r, NULL)) return -1;
    }
    return 0;
}

static const dcp_store_options any_order = {.size = sizeof any_order, .keep_latest = 1};

int main(int argc, char **argv) {
    char line[4096], *data;
    int shards = 0;
    uint32_t dim = 0;
    dcp_error err = {0};
    dcp_comm *comm;
    dcp_state *state;
    dcp_store *store;
    if (argc < 5 || dcp_comm_self(&comm, &err) || dcp_state_create(&state, &err)) return 2;
    if (strcmp(argv[3], "global") && sscanf(argv[3], "sharded:%d:%" SCNu32, &shards, &dim) != 2)
        return 2;
    while (fgets(line, sizeof line, stdin)) {
        dcp_tensor t = {0};
        if (parse(line, &t, &data)) return 2;
        int status = shards ? add_shards(state, &t, data, shards, dim)
                            : dcp_state_add(state, &t, NULL, data, &err);
        if (status) return fail(err.message[0] ? err.message : t.path) ? 3 : 0;
    }
    dcp_save_options options = {.size = sizeof options,
                                .layout = shards ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL,
                                .shards = shards};
    if (dcp_store_open(comm, argv[1], &any_order, &store, &err) ||
        dcp_save(store, strtoull(argv[2], NULL, 10), state, argv[4], &options, NULL, &err))
        return fail(err.message) ? 3 : 0;
    dcp_store_close(store);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    for (size_t i = 0; i < n_kept; i++) free(kept[i]);
    return 0;
}
