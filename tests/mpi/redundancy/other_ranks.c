/* More or fewer ranks than saved, each of which sees some of the nodes' folders, rebuild what is
 * lost; and what they rebuild survives the next loss. */
#include "support/private_files.h"

static dcp_comm *ranks_below(const scratch *s, int n) {
    MPI_Comm part;
    dcp_comm *comm = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, s->rank < n ? 0 : MPI_UNDEFINED, s->rank, &part);
    if (s->rank >= n) return NULL;
    SUCCEEDS(dcp_comm_from_mpi(part, &comm, err));
    MPI_Comm_free(&part);
    return comm;
}

/* Rebuilds on `comm`, whose ranks see every size-th node's folder, starting with the one after
 * their own number, and an empty one for numbers beyond the nodes that saved. A second survey finds
 * what they rebuild. */
static void rebuild_on(const private_files *p, dcp_comm *comm, int lost) {
    char folders[8][PATH_MAX];
    const char *list[8];
    int rank = dcp_comm_rank(comm), size = dcp_comm_size(comm), n = 0, shards, files;
    redundancy_survey *survey = NULL;
    int first = (rank + 1) % size;
    for (int node = first; node < p->nodes || node == first; node += size, n++) {
        private_folder(p, node, folders[n]);
        list[n] = folders[n];
        *strrchr(folders[n], '/') = '\0'; /* a new node's directory exists, the step does not */
        mkdir(folders[n], 0777);
        private_folder(p, node, folders[n]);
    }
    SUCCEEDS(redundancy_survey_open(comm, list, (size_t)n, (uint64_t)rank, 1, &survey, err));
    redundancy_survey_lost(survey, &shards, &files);
    CHECK(shards == lost && files == lost);
    SUCCEEDS(redundancy_reconstruct(comm, survey, folders[0], err));
    redundancy_survey_close(survey);
    SUCCEEDS(redundancy_survey_open(comm, list, (size_t)n, (uint64_t)rank, 1, &survey, err));
    redundancy_survey_lost(survey, &shards, &files);
    CHECK(shards == 0 && files == 0);
    redundancy_survey_close(survey);
}

/* `saving` ranks save; nodes are lost; `loading` ranks rebuild. */
static void check(const scratch *s, int saving, int ranks_a_node, int loading,
                  const char *redundancy, unsigned lost) {
    static const size_t bytes[] = {50001, 3, 8192, 12345, 0, 4097};
    private_files p;
    dcp_comm *savers = ranks_below(s, saving), *loaders = ranks_below(s, loading);
    private_save(&p, s, savers, saving, ranks_a_node, redundancy, bytes);
    private_lose(&p, lost);
    if (loaders) rebuild_on(&p, loaders, ranks_a_node * __builtin_popcount(lost));
    private_compare(&p, 1);
    if (loading > saving) { /* the lost files are now on other nodes than the rest */
        private_lose(&p, saving > 2 ? 1 << 2 : 1);
        if (loaders) rebuild_on(&p, loaders, 1);
        private_compare(&p, 1);
    }
    private_end(&p);
    dcp_comm_destroy(savers);
    dcp_comm_destroy(loaders);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size == 5);
    for (int loading = 1; loading <= 4; loading++) {
        check(&s, 5, 1, loading, "rs(2)", 1 << 1 | 1 << 4);
        check(&s, 5, 1, loading, "partner", 1 << 0 | 1 << 2);
    }
    for (int saving = 2; saving <= 4; saving++) {
        check(&s, saving, 1, 5, "rs(1)", 1 << 1);
        check(&s, saving, 1, 5, "partner", 1 << 1);
    }
    check(&s, 4, 2, 1, "rs(1)", 1 << 1); /* more groups than ranks */
    return scratch_end(&s);
}
