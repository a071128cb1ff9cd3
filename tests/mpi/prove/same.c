/* dcp_prove gives one state id and the same checksums for a state however ranks hold it, equal to
 * those of its files in both layouts; another bit gives another id; differing replicas are
 * reported. */
#include "support/scratch.h"

static int prove(const scratch *s, const held *h, const dcp_prove_options *options,
                 dcp_proof **proof, dcp_error *failure) {
    return dcp_prove(s->comm, h->state, options, proof, failure);
}

static void check_proof(const dcp_checkpoint *ckpt, const dcp_proof *proof) {
    uint64_t id, crc;
    CHECK(dcp_checkpoint_state_id(ckpt, &id) && dcp_proof_id(proof) == id);
    CHECK(dcp_proof_tensors(proof) == dcp_checkpoint_tensors(ckpt));
    for (size_t i = 0; i < dcp_proof_tensors(proof); i++) {
        const dcp_tensor *t = dcp_proof_tensor(proof, i), *stored = dcp_checkpoint_tensor(ckpt, i);
        CHECK(!strcmp(t->path, stored->path) && t->dtype == stored->dtype);
        SUCCEEDS(dcp_checkpoint_crc(ckpt, i, &crc, err));
        CHECK(dcp_proof_crc(proof, i) == crc);
    }
    CHECK(dcp_proof_tensor(proof, dcp_proof_tensors(proof)) == NULL);
}

static void same_as_files(const scratch *s, const given *g) {
    scratch_save(s, s->comm, "global", g, COLUMNS, DCP_LAYOUT_GLOBAL);
    scratch_save(s, s->comm, "sharded", g, ROWS, DCP_LAYOUT_SHARDED);
    dcp_checkpoint *global = scratch_open(s, s->comm, "global"),
                   *sharded = scratch_open(s, s->comm, "sharded");
    for (scheme how = ROWS; how < SAVE_SCHEMES; how++) {
        held h;
        dcp_proof *proof = NULL;
        held_make(&h, g, how, s->rank, s->size, 1);
        SUCCEEDS(prove(s, &h, NULL, &proof, err));
        check_proof(global, proof);
        check_proof(sharded, proof);
        dcp_proof_destroy(proof);
        held_free(&h);
    }
    dcp_checkpoint_close(global);
    dcp_checkpoint_close(sharded);
}

static int read_box(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)err;
    memcpy(out, (const unsigned char *)ctx + offset, bytes);
    return DCP_OK;
}

/* Proves the same boxes, supplied by functions. */
static void same_from_sources(const scratch *s, const given *g) {
    held h;
    dcp_state *state;
    dcp_proof *one = NULL, *two = NULL;
    held_make(&h, g, PAIRS, s->rank, s->size, 1);
    SUCCEEDS(dcp_state_create(&state, err));
    for (size_t i = 0; i < h.n; i++)
        SUCCEEDS(dcp_state_add_source(state, &g->tensors[h.boxes[i].tensor], &h.boxes[i].box,
                                      read_box, h.boxes[i].data, -1, err));
    SUCCEEDS(prove(s, &h, NULL, &one, err));
    SUCCEEDS(dcp_prove(s->comm, state, NULL, &two, err));
    CHECK(dcp_proof_id(one) == dcp_proof_id(two));
    dcp_proof_destroy(one);
    dcp_proof_destroy(two);
    dcp_state_destroy(state);
    held_free(&h);
}

/* Changes, on the last rank, the last byte of its last box with bytes. */
static void change(const scratch *s, const given *g, held *h) {
    size_t i = h->n - 1;
    if (s->rank < s->size - 1) return;
    while (!dcp_box_elems(&h->boxes[i].box, g->tensors[h->boxes[i].tensor].ndim)) i--;
    h->boxes[i].data[0] ^= 0x80;
}

static void another_bit(const scratch *s, const given *g) {
    held h;
    dcp_proof *before = NULL, *after = NULL;
    held_make(&h, g, STRIPES, s->rank, s->size, 1);
    SUCCEEDS(prove(s, &h, NULL, &before, err));
    change(s, g, &h);
    SUCCEEDS(prove(s, &h, NULL, &after, err));
    CHECK(dcp_proof_id(before) != dcp_proof_id(after));
    dcp_proof_destroy(before);
    dcp_proof_destroy(after);
    held_free(&h);
}

static void keep_warning(void *ctx, dcp_log_level level, const char *line) {
    (void)level;
    snprintf(ctx, 1100, "%s", line);
}

static void replicas_differ(const scratch *s, const given *g) {
    held h;
    char warning[1100] = "";
    dcp_error failure = {0};
    dcp_proof *right = NULL, *proof = NULL;
    dcp_prove_options options = {.size = sizeof options,
                                 .replicas = DCP_REPLICAS_CHECK,
                                 .log = keep_warning,
                                 .log_ctx = warning};
    held_make(&h, g, COPIES, s->rank, s->size, 1);
    SUCCEEDS(prove(s, &h, NULL, &right, err));
    change(s, g, &h);
    int status = prove(s, &h, &options, &proof, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "differ in its block 0 ");
    options.replicas = DCP_REPLICAS_WARN;
    SUCCEEDS(prove(s, &h, &options, &proof, err));
    CHECK((s->rank == 0) == (strstr(warning, "differ in its block 0 ") != NULL));
    CHECK(dcp_proof_id(proof) == dcp_proof_id(right)); /* the lowest holder's */
    dcp_proof_destroy(proof);
    options.replicas = s->rank ? DCP_REPLICAS_TRUST : DCP_REPLICAS_WARN;
    status = prove(s, &h, &options, &proof, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "replicas");
    dcp_proof_destroy(right);
    held_free(&h);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    same_as_files(&s, &g);
    same_from_sources(&s, &g);
    another_bit(&s, &g);
    if (s.size > 1) replicas_differ(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
