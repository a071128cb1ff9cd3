/* If any nodes are lost, at most as many as the redundancy tolerates, all files are restored, byte
 * for byte; if one more is lost, all ranks get a clear error, and nothing is written. */
#include "support/private_files.h"

/* Nodes in a ring: no two neighbours are lost. */
static int has_neighbours(unsigned lost, int nodes) {
    for (int node = 0; node < nodes; node++)
        if (lost >> node & 1 && lost >> (node + 1) % nodes & 1) return 1;
    return 0;
}

static int popcount(unsigned set) { return __builtin_popcount(set); }

static void check_rebuilt(const private_files *p, unsigned lost) {
    int shards, files;
    redundancy_survey *survey = private_survey(p, 1);
    SUCCEEDS(redundancy_survey_check(survey, err));
    redundancy_survey_lost(survey, &shards, &files);
    CHECK(shards == popcount(lost) * p->ranks_a_node && files == shards);
    private_rebuild(p, survey);
    redundancy_survey_lost(survey, &shards, &files);
    CHECK(shards == 0 && files == 0);
    for (int f = 0; f < p->world; f++) {
        CHECK(survey->files[f].rank / p->ranks_a_node == f / p->ranks_a_node);
        int mine = survey->files[f].rank == p->s->rank;
        CHECK(mine == !!survey->files[f].path);
        if (mine) CHECK(access(survey->files[f].path, R_OK) == 0);
    }
    redundancy_survey_close(survey);
    private_compare(p, 0);
}

static void check_refused(const private_files *p, unsigned lost) {
    dcp_error err = {0};
    char folder[PATH_MAX];
    redundancy_survey *survey = private_survey(p, 1);
    check_same_failure(redundancy_survey_check(survey, &err), DCP_ERR_NOT_FOUND, &err,
                       "load an older step");
    CHECK(strstr(err.message, "step 7 can't be rebuilt: in the group of shards 0, "));
    private_folder(p, p->s->rank / p->ranks_a_node, folder);
    check_same_failure(redundancy_reconstruct(p->s->comm, survey, folder, &err), DCP_ERR_NOT_FOUND,
                       &err, "can't be rebuilt");
    redundancy_survey_close(survey);
    int is_lost = lost >> p->s->rank / p->ranks_a_node & 1;
    CHECK(access(folder, F_OK) == (is_lost ? -1 : 0));
    private_restore(p);
}

static void check_losses(const scratch *s, const char *redundancy, int k, int ranks_a_node,
                         const size_t *bytes) {
    private_files p;
    private_save(&p, s, s->comm, s->size, ranks_a_node, redundancy, bytes);
    for (unsigned lost = 0; lost + 1 < 1u << p.nodes; lost++) {
        int survives = k ? popcount(lost) <= k : !has_neighbours(lost, p.nodes);
        if (popcount(lost) > k + 1 && !survives) continue;
        private_lose(&p, lost);
        if (survives)
            check_rebuilt(&p, lost);
        else
            check_refused(&p, lost);
    }
    private_end(&p);
}

int main(int argc, char **argv) {
    static const size_t small[] = {70001, 0, 4096, 12345, 1, 4095}, empty[6] = {0};
    static const size_t large[] = {9437185, 8388608, 12582913, 5, 4194305, 9000000};
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size >= 2 && s.size <= 6);
    char text[16];
    for (int k = 1; k <= 3 && k < s.size; k++) {
        snprintf(text, sizeof text, "rs(%d)", k);
        if (s.size < 6 || k == 3) check_losses(&s, text, k, 1, small);
        if (s.size % 2 == 0 && k < s.size / 2) check_losses(&s, text, k, 2, small);
    }
    check_losses(&s, "partner", 0, 1, small);
    if (s.size == 4) check_losses(&s, "partner", 0, 2, small);
    if (s.size == 3) check_losses(&s, "rs(2)", 2, 1, large);
    if (s.size == 3) check_losses(&s, "partner", 0, 1, large);
    if (s.size == 3) check_losses(&s, "rs(1)", 1, 1, empty);
    return scratch_end(&s);
}
