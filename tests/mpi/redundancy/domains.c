/* Redundancy is between failure domains: hosts, or what the caller names. With racks of two nodes
 * each, the loss of as many whole racks as requested is repaired; redundancy that cannot be spread
 * over them is refused; and the store, its steps and a rebuild report what they survive. */
#include <jansson.h>

#include "dcp/inspect.h"
#include "dcp/tiers.h"
#include "store/store.h"
#include "support/private_files.h"

static char log_lines[16384];

static void note(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    size_t length = strlen(log_lines);
    snprintf(log_lines + length, sizeof log_lines - length, "%s\n", line);
}

static int open_in(dcp_comm *comm, const private_files *p, int node, const char *redundancy,
                   const char *domain, dcp_store **store, dcp_error *err) {
    char dir[PATH_MAX];
    dcp_store_options options = {.size = sizeof options,
                                 .private_dirs = 1,
                                 .redundancy = redundancy,
                                 .log = note,
                                 .domain = domain};
    private_folder(p, node, dir);
    *strrchr(dir, '/') = '\0';
    return dcp_store_open(comm, dir, &options, store, err);
}

static char *rack_of(const private_files *p, char *name) {
    sprintf(name, "rack-%d", p->s->rank / 2);
    return name;
}

static int racks(const private_files *p) { return p->s->size / 2; }

static void check_refused(const private_files *p, int node, const char *redundancy,
                          const char *domain, const char *text) {
    dcp_store *store;
    dcp_error failure = {0};
    int status = open_in(p->s->comm, p, node, redundancy, domain, &store, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, text);
}

static void what_cannot_be_spread_is_refused(const private_files *p) {
    int rank = p->s->rank;
    char rack[32], text[128];
    rack_of(p, rack);
    check_refused(p, rank, "partner", NULL,
                  "partner needs ranks in at least 2 failure domains, but they are in 1");
    check_refused(p, rank, "partner", rank == 1 ? "rack" : NULL,
                  "rank 1 names its domain, rank 0 does not");
    check_refused(p, rank, "none", rank ? rack : NULL, "rank 1 names its domain, rank 0 does not");
    check_refused(p, rank, "partner", "", "domain is \"\"");
    check_refused(p, rank / 2, "partner", rank % 2 ? "odd" : "even",
                  "ranks 0 and 1 have one directory");
    snprintf(text, sizeof text, "one domain has %d of the %d ranks", p->s->size - 1, p->s->size);
    check_refused(p, rank, "partner", rank ? "most" : "one", text);
    char too_much[16];
    snprintf(too_much, sizeof too_much, "rs(%d)", racks(p));
    snprintf(text, sizeof text, "%s needs ranks in at least %d failure domains, but they are in %d",
             too_much, racks(p) + 1, racks(p));
    check_refused(p, rank, too_much, rack, text);
}

static void check_survives(dcp_comm *comm, const private_files *p, const char *redundancy,
                           const char *domain, int losses) {
    dcp_store *store;
    SUCCEEDS(open_in(comm, p, p->s->rank, redundancy, domain, &store, err));
    CHECK(dcp_store_survives(store) == losses);
    dcp_store_close(store);
}

static void a_store_says_what_it_survives(const private_files *p) {
    char rack[32], host[32], dir[80];
    dcp_comm *hosts;
    dcp_store *store;
    rack_of(p, rack);
    check_survives(p->s->comm, p, "partner", rack, 1);
    check_survives(p->s->comm, p, "rs(1)", rack, 1);
    if (racks(p) > 2) check_survives(p->s->comm, p, "rs(2)", rack, 2);
    check_survives(p->s->comm, p, NULL, rack, 0);
    check_survives(p->s->comm, p, NULL, NULL, 0);
    SUCCEEDS(dcp_comm_from_mpi(MPI_COMM_WORLD, &hosts, err));
    snprintf(host, sizeof host, "host-%d", p->s->rank % 2);
    SUCCEEDS(dcp_comm_set_host(hosts, host, err));
    check_survives(hosts, p, "rs(1)", NULL, 1);
    dcp_comm_destroy(hosts);
    snprintf(dir, sizeof dir, "%s/shared", p->s->root);
    SUCCEEDS(dcp_store_open(p->s->comm, dir, NULL, &store, err));
    CHECK(dcp_store_survives(store) == INT_MAX && dcp_store_survives(NULL) == 0);
    dcp_store_close(store);
}

static void stores_of_a_list_have_domains(const private_files *p) {
    dcp_tiers *tiers;
    dcp_error failure = {0};
    char rack[32], memory[80], shared[80];
    snprintf(memory, sizeof memory, "%s/memory-{rank}", p->s->root);
    snprintf(shared, sizeof shared, "%s/slow", p->s->root);
    dcp_tier list[] = {{.size = sizeof(dcp_tier),
                        .path = memory,
                        .every = 1,
                        .is_private = 1,
                        .redundancy = "rs(1)"},
                       {.size = sizeof(dcp_tier), .path = shared, .every = 4}};
    check_same_failure(dcp_tiers_open(p->s->comm, list, 2, NULL, &tiers, &failure), DCP_ERR_ARG,
                       &failure, "they are in 1");
    list[0].domain = "{env:DCP_TEST_RACK}";
    check_same_failure(dcp_tiers_open(p->s->comm, list, 2, NULL, &tiers, &failure), DCP_ERR_ARG,
                       &failure, "DCP_TEST_RACK is not set");
    setenv("DCP_TEST_RACK", rack_of(p, rack), 1);
    SUCCEEDS(dcp_tiers_open(p->s->comm, list, 2, NULL, &tiers, err));
    CHECK(dcp_tiers_survives(tiers, 0) == 1 && dcp_tiers_survives(tiers, 1) == INT_MAX);
    CHECK(dcp_tiers_survives(tiers, 2) == 0);
    dcp_tiers_close(tiers);
}

static void save(private_files *p, const char *redundancy) {
    dcp_save_options options = {.size = sizeof options,
                                .layout = DCP_LAYOUT_SHARDED,
                                .about_json = "{\"kernels\": \"k\", \"processor\": \"p\"}"};
    dcp_store *store;
    given g;
    held h;
    char rack[32];
    given_make(&g, 0);
    held_make(&h, &g, ROWS, p->s->rank, p->s->size, 1);
    SUCCEEDS(open_in(p->s->comm, p, p->s->rank, redundancy, rack_of(p, rack), &store, err));
    SUCCEEDS(dcp_save(store, PRIVATE_STEP, h.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(store);
    held_free(&h);
    given_free(&g);
    MPI_Barrier(MPI_COMM_WORLD);
    private_keep(p);
}

/* Checks about.json of this rank's folder. */
static void check_about(const private_files *p, int survives, int is_rebuilt, const char *domain) {
    char folder[PATH_MAX], *text;
    dcp_glance seen = DCP_GLANCE_INIT;
    private_folder(p, p->s->rank, folder);
    SUCCEEDS(dcp_about_read(folder, &text, err));
    json_t *about = json_loads(text, 0, NULL);
    free(text);
    CHECK(!strcmp(json_string_value(json_object_get(about, "kernels")), "k"));
    CHECK(!strcmp(json_string_value(json_object_get(about, "processor")), "p"));
    CHECK(!strcmp(json_string_value(json_object_get(about, "layout")), "sharded"));
    CHECK(!strcmp(json_string_value(json_object_get(about, "domain")), domain));
    CHECK(json_integer_value(json_object_get(about, "survives")) == survives);
    CHECK(json_is_true(json_object_get(about, "rebuilt")) == is_rebuilt);
    json_decref(about);
    SUCCEEDS(dcp_step_glance(folder, &seen, err));
    CHECK(seen.survives == survives && seen.has_names && seen.domains >= 1);
}

static void rebuild(const private_files *p, const char *domain, int files) {
    dcp_store *store;
    uint64_t step = 0;
    int rebuilt = -1;
    log_lines[0] = '\0';
    SUCCEEDS(open_in(p->s->comm, p, p->s->rank, NULL, domain, &store, err));
    SUCCEEDS(dcp_store_rebuild(store, 0, &step, &rebuilt, err));
    dcp_store_close(store);
    CHECK(step == PRIVATE_STEP && rebuilt == files);
    MPI_Barrier(MPI_COMM_WORLD);
}

static unsigned nodes_of_rack(int rack) { return 3u << 2 * rack; }

/* Loses each set of so many racks, including rank 0's. */
static void whole_racks_are_rebuilt(const private_files *p, int losses) {
    char rack[32];
    unsigned ever = 0;
    rack_of(p, rack);
    check_about(p, losses, 0, rack);
    for (unsigned lost = 1; lost < 1u << racks(p); lost++) {
        unsigned nodes = 0;
        if (__builtin_popcount(lost) > losses) continue;
        for (int r = 0; r < racks(p); r++) nodes |= lost >> r & 1 ? nodes_of_rack(r) : 0;
        private_lose(p, nodes);
        rebuild(p, rack, 2 * __builtin_popcount(nodes));
        private_compare(p, 0);
        ever |= nodes;
        check_about(p, losses, ever >> p->s->rank & 1, rack);
        CHECK(!strstr(log_lines, "from now on"));
    }
}

/* All ranks are in one domain now. */
static void fewer_domains_survive_less(const private_files *p) {
    char rack[32];
    int is_lost = p->s->rank < 2;
    private_lose(p, nodes_of_rack(0));
    rebuild(p, "the last", 4);
    private_compare(p, 0);
    check_about(p, is_lost ? 0 : 1, is_lost, is_lost ? "the last" : rack_of(p, rack));
    CHECK(p->s->rank || strstr(log_lines, "survives the loss of 0 failure domains from now on, not "
                                          "of 1"));
}

static void check_losses(const scratch *s, const char *redundancy, int losses) {
    private_files p = {.s = s, .world = s->size, .ranks_a_node = 1, .nodes = s->size};
    save(&p, redundancy);
    whole_racks_are_rebuilt(&p, losses);
    private_end(&p);
    if (losses > 1) return;
    p = (private_files){.s = s, .world = s->size, .ranks_a_node = 1, .nodes = s->size};
    save(&p, redundancy);
    fewer_domains_survive_less(&p);
    private_end(&p);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size == 4 || s.size == 6);
    private_files p = {.s = &s, .world = s.size, .ranks_a_node = 1, .nodes = s.size};
    what_cannot_be_spread_is_refused(&p);
    a_store_says_what_it_survives(&p);
    stores_of_a_list_have_domains(&p);
    private_end(&p);
    check_losses(&s, "partner", 1);
    check_losses(&s, "rs(1)", 1);
    if (s.size == 6) check_losses(&s, "rs(2)", 2);
    return scratch_end(&s);
}
