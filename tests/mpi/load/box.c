/* dcp_checkpoint_read: any box of any tensor by one process, from either layout; boxes outside a
 * tensor and missing tensors are refused. */
#include "support/scratch.h"

static uint64_t any(void) {
    static uint64_t seed = 7;
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return seed >> 33;
}

static dcp_box any_box(const dcp_tensor *t) {
    dcp_box box = dcp_box_whole(t);
    for (uint32_t d = 0; d < t->ndim; d++) {
        box.count[d] = any() % (t->shape[d] + 1);
        box.start[d] = any() % (t->shape[d] - box.count[d] + 1);
    }
    return box;
}

static void read_boxes(dcp_checkpoint *ckpt, const given *g) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++)
        for (int i = 0; i < 6; i++) {
            const dcp_tensor *tensor = &g->tensors[t];
            dcp_box box = i ? any_box(tensor) : dcp_box_whole(tensor);
            uint64_t bytes;
            unsigned char *want = given_cut(g, t, &box, &bytes), *have = calloc(bytes + 1, 1);
            SUCCEEDS(dcp_checkpoint_read(ckpt, tensor->path, &box, have, err));
            CHECK(memcmp(want, have, bytes) == 0);
            free(want);
            free(have);
        }
}

static void refuse(dcp_checkpoint *ckpt) {
    unsigned char data[64];
    dcp_error failure = {0};
    static const dcp_box outside[] = {{{0, 0}, {14, 1}},
                                      {{13, 0}, {1, 1}},
                                      {{0, 7}, {1, 1}},
                                      {{1, 0}, {UINT64_MAX, 1}},
                                      {{UINT64_MAX, 0}, {1, 1}}};
    for (int i = 0; i < 5; i++) {
        CHECK(dcp_checkpoint_read(ckpt, "/model/uneven", &outside[i], data, &failure) ==
              DCP_ERR_ARG);
        CHECK(strstr(failure.message, "/model/uneven"));
    }
    dcp_box one = {{0, 0}, {1, 1}}, second = {{1}, {1}};
    CHECK(dcp_checkpoint_read(ckpt, "/model/scalar", &second, data, NULL) == DCP_ERR_ARG);
    CHECK(dcp_checkpoint_read(ckpt, "/model/none", &one, data, NULL) == DCP_ERR_NOT_FOUND);
    CHECK(dcp_checkpoint_read(ckpt, NULL, &one, data, NULL) == DCP_ERR_ARG);
    CHECK(dcp_checkpoint_read(ckpt, "/model/uneven", NULL, data, NULL) == DCP_ERR_ARG);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        char dir[PATH_MAX];
        dcp_checkpoint *ckpt = NULL;
        scratch_save(&s, s.comm, "store", &g, layout ? STRIPES : ROWS, layout);
        snprintf(dir, sizeof dir, "%s/store", s.root);
        SUCCEEDS(dcp_checkpoint_open(s.self, dir, &ckpt, err));
        read_boxes(ckpt, &g);
        refuse(ckpt);
        dcp_checkpoint_close(ckpt);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    given_free(&g);
    return scratch_end(&s);
}
