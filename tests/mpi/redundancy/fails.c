/* What one rank cannot do is an error on all ranks, which names it; then no redundancy file is
 * left, and the next attempt works. */
#include <signal.h>
#include <sys/resource.h>

#include "comm/comm.h"
#include "support/private_files.h"

static const size_t lengths[] = {50001, 9000, 4096, 70000};

static int count_files(const private_files *p) {
    char folder[PATH_MAX];
    int n = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    private_folder(p, p->s->rank, folder);
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) n += e->d_type != DT_DIR;
    if (dir) closedir(dir);
    MPI_Barrier(MPI_COMM_WORLD);
    return n;
}

/* Limits the length of this process's files, which simulates a full disk. */
static void limit_files(uint64_t bytes) {
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void fail_to_encode(const private_files *p, const char *folder, int status,
                           const char *text) {
    dcp_error err = {0};
    check_same_failure(redundancy_encode(p->s->comm, p->groups, folder, PRIVATE_STEP, NULL, &err),
                       status, &err, text);
    CHECK(strstr(err.message, "rank 1: "));
    CHECK(count_files(p) == 1);
}

static int rank_one_stops(void *rank) { return *(int *)rank == 1; }

/* Rank 1 cancels. */
static void stop_encoding(const private_files *p, const char *folder) {
    int rank = p->s->rank;
    dcp_error err = {0};
    comm_stop stop = {
        .should_stop = rank_one_stops, .ctx = &rank, .what = "it", .outcome = "nothing is there"};
    comm_stop_begin(&stop, p->s->comm);
    check_same_failure(redundancy_encode(p->s->comm, p->groups, folder, PRIVATE_STEP, &stop, &err),
                       DCP_ERR_CANCELLED, &err, "it was cancelled by rank 1: nothing is there");
    CHECK(count_files(p) == 1);
}

static void check_encode(const private_files *p) {
    char folder[PATH_MAX], path[PATH_MAX];
    private_folder(p, p->s->rank, folder);
    private_path(p, p->s->rank, p->groups->spec.kind == REDUNDANCY_RS ? "parity" : "partner", path);
    CHECK(unlink(path) == 0);
    fail_to_encode(p, p->s->rank == 1 ? "/nowhere" : folder, DCP_ERR_NOT_FOUND, "/nowhere");
    if (p->s->rank == 1) CHECK(mkdir(path, 0777) == 0);
    fail_to_encode(p, folder, DCP_ERR_IO, "cannot finish");
    if (p->s->rank == 1) CHECK(rmdir(path) == 0);
    if (p->s->rank == 1) limit_files(4096);
    fail_to_encode(p, folder, DCP_ERR_IO, ".tmp-par");
    if (p->s->rank == 1) limit_files(RLIM_INFINITY);
    stop_encoding(p, folder);
    SUCCEEDS(redundancy_encode(p->s->comm, p->groups, folder, PRIVATE_STEP, NULL, err));
    private_compare(p, 0);
}

static int give_up(void *ctx) {
    (void)ctx;
    return 1;
}

/* One rank cancels, while it reads what is left and while all rebuild. */
static void stop_rebuild(const private_files *p, redundancy_survey *survey, const char *folder) {
    const char *const folders[] = {folder};
    redundancy_survey *other = NULL;
    dcp_error err = {0};
    if (p->s->rank == 0) dcp_comm_set_stop(p->s->comm, give_up, NULL);
    check_same_failure(
        redundancy_survey_open(p->s->comm, folders, 1, (uint64_t)p->s->rank, 1, &other, &err),
        DCP_ERR_CANCELLED, &err, "the rebuild was cancelled by rank 0");
    check_same_failure(redundancy_reconstruct(p->s->comm, survey, folder, &err), DCP_ERR_CANCELLED,
                       &err, "the rebuild was cancelled by rank 0");
    CHECK(err.rank == 0 && count_files(p) == (p->s->rank == 1 ? 0 : 2));
    dcp_comm_set_stop(p->s->comm, NULL, NULL);
}

static void check_rebuild(const private_files *p) {
    char folder[PATH_MAX];
    dcp_error err = {0};
    private_folder(p, p->s->rank, folder);
    private_lose(p, 1 << 1);
    redundancy_survey *survey = private_survey(p, 1);
    stop_rebuild(p, survey, folder);
    if (p->s->rank == 1) limit_files(4096);
    check_same_failure(redundancy_reconstruct(p->s->comm, survey, folder, &err), DCP_ERR_IO, &err,
                       "rank 1: ");
    if (p->s->rank == 1) limit_files(RLIM_INFINITY);
    CHECK(count_files(p) == (p->s->rank == 1 ? 0 : 2));
    private_rebuild(p, survey);
    redundancy_survey_close(survey);
    private_compare(p, 0);
}

/* A survey of lengths alone, no redundancy file at all, groups of other ranks. */
static void check_misuse(const private_files *p) {
    char folder[PATH_MAX];
    dcp_error err = {0};
    redundancy_survey *survey = private_survey(p, 0), *other = NULL;
    private_folder(p, p->s->rank, folder);
    check_same_failure(redundancy_reconstruct(p->s->comm, survey, folder, &err), DCP_ERR_ARG, &err,
                       "a survey of every byte");
    redundancy_survey_close(survey);
    check_same_failure(redundancy_survey_open(p->s->comm, NULL, 0, 0, 1, &other, &err),
                       DCP_ERR_NOT_FOUND, &err, "no rank sees an intact redundancy file");
    if (p->s->size > 2)
        check_same_failure(
            redundancy_encode(p->s->self, p->groups, folder, PRIVATE_STEP, NULL, &err) ? DCP_ERR_ARG
                                                                                       : 0,
            DCP_ERR_ARG, &err, "but the save has 1");
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {"rs(1)", "partner"};
    scratch s;
    signal(SIGXFSZ, SIG_IGN);
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size >= 2 && s.size <= 4);
    for (int i = 0; i < 2; i++) {
        private_files p;
        private_save(&p, &s, s.comm, s.size, 1, kinds[i], lengths);
        check_encode(&p);
        check_rebuild(&p);
        check_misuse(&p);
        private_end(&p);
    }
    return scratch_end(&s);
}
