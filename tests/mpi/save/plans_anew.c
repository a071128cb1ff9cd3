/* A store keeps its plan from save to save: if tensors, boxes, their memory, the layout or the
 * JSON's length change, on one rank or on all, what is saved is still what was passed. */
#include "support/scratch.h"

static uint64_t step = 1;
static int held_as; /* the rank whose boxes this rank saves */

static void save_and_load(const scratch *s, dcp_store *store, const given *g, scheme how,
                          const char *json, dcp_layout layout) {
    held h, back;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    held_make(&h, g, how, held_as, s->size, 1);
    SUCCEEDS(dcp_save(store, ++step, h.state, json, &options, NULL, err));
    held_free(&h);
    snprintf(dir, sizeof dir, "%s/store/step-%08d", s->root, (int)step);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    CHECK(dcp_checkpoint_step(ckpt) == step && dcp_checkpoint_layout(ckpt) == layout);
    CHECK(dcp_checkpoint_tensors(ckpt) == (size_t)GIVEN_TENSORS / (how == ONE_OF_TWO ? 2 : 1));
    CHECK(strlen(dcp_checkpoint_json(ckpt)) > strlen(json));
    held_make(&back, g, how == ONE_OF_TWO ? how : COLUMNS, s->rank, s->size, 0);
    SUCCEEDS(dcp_load(ckpt, back.state, NULL, err));
    CHECK(held_is_given(&back, g));
    held_free(&back);
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g, other;
    scratch_begin(&s, &argc, &argv);
    held_as = s.rank;
    given_make(&g, 0);
    given_make(&other, 1);
    char *json = malloc(200001);
    memset(json, 'x', 200000);
    memcpy(json, "{\"text\":\"", 9);
    memcpy(json + 199998, "\"}", 3);
    dcp_store *store = scratch_store(&s, s.comm, "store");
    save_and_load(&s, store, &g, ROWS, "{}", DCP_LAYOUT_GLOBAL);
    save_and_load(&s, store, &other, ROWS, "{}", DCP_LAYOUT_GLOBAL); /* other memory */
    save_and_load(&s, store, &other, COLUMNS, "{}", DCP_LAYOUT_GLOBAL);
    save_and_load(&s, store, &g, ONE_OF_TWO, "{}", DCP_LAYOUT_GLOBAL);
    save_and_load(&s, store, &g, ONE_OF_TWO, json, DCP_LAYOUT_GLOBAL);
    save_and_load(&s, store, &g, ROWS, json, DCP_LAYOUT_SHARDED);
    save_and_load(&s, store, &other, ROWS, json, DCP_LAYOUT_SHARDED);
    save_and_load(&s, store, &other, ROWS, "{}", DCP_LAYOUT_GLOBAL);
    held_as = s.rank ? s.size - s.rank : 0; /* nothing changes on rank 0 */
    save_and_load(&s, store, &other, ROWS, "{}", DCP_LAYOUT_GLOBAL);
    held_as = s.rank;
    save_and_load(&s, store, &g, ROWS, "{}", DCP_LAYOUT_GLOBAL);
    dcp_store_close(store);
    free(json);
    given_free(&g);
    given_free(&other);
    return scratch_end(&s);
}
