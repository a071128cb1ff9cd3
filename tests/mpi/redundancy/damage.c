/* Damage is treated as a loss: a file with a flipped byte, a wrong length or another save's content
 * is rebuilt in its place, also if another node has an intact copy of it; what the quick survey
 * cannot see the complete one does; and the redundancy files' own check detects flips everywhere.
 */
#include "support/private_files.h"

static const size_t lengths[] = {30001, 9000, 4096};

static void flip(const char *path, size_t at) {
    unsigned char byte;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, (off_t)at) == 1 && close(fd) == 0);
}

static void check_lost(const private_files *p, int every_byte, int shards, int files) {
    int lost_shards, lost_files;
    redundancy_survey *survey = private_survey(p, every_byte);
    redundancy_survey_lost(survey, &lost_shards, &lost_files);
    CHECK(lost_shards == shards && lost_files == files);
    redundancy_survey_close(survey);
}

/* After some damage, checks how many files count as lost, and that all of them are repaired. */
static void check_mended(const private_files *p, int shards, int files) {
    MPI_Barrier(MPI_COMM_WORLD);
    check_lost(p, 1, shards, files);
    redundancy_survey *survey = private_survey(p, 1);
    private_rebuild(p, survey);
    redundancy_survey_close(survey);
    private_compare(p, 0);
}

static void check_flips(const private_files *p, const char *kind) {
    char path[PATH_MAX];
    private_path(p, 1, kind, path);
    static const size_t places[] = {0, 8, 300, 4090, 4097, 4500, 8191, 8192, 8900};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (p->s->rank == 0) flip(path, places[i]);
        check_mended(p, kind[0] == 's', kind[0] != 's');
    }
}

static void count(void *ctx, const char *line) {
    CHECK(strstr(line, "parity-00001-of-00003.bin: "));
    ++*(int *)ctx;
}

static int damages_found(const char *folder) {
    int damages = 0;
    const redundancy_reader reader = {&damages, count, NULL};
    SUCCEEDS(redundancy_parity_verify(folder, &reader, err));
    return damages;
}

static void put_directory(const private_files *p, const char *kind, const char *mine) {
    char path[PATH_MAX], folder[PATH_MAX];
    private_path(p, 1, kind, path);
    private_folder(p, 1, folder);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) {
        CHECK(unlink(path) == 0 && mkdir(path, 0777) == 0);
        strcat(path, "/mine");
        if (mine) private_write(path, (const unsigned char *)mine, strlen(mine));
        CHECK(kind[0] == 's' || damages_found(folder) == 1);
    }
}

/* What is in a directory that has a file's name is not lost. */
static void check_directories(const private_files *p, const char *kind) {
    char path[PATH_MAX], mine[PATH_MAX + 32];
    for (int k = 0; k < 3; k++) {
        put_directory(p, kind, k ? "mine" : NULL);
        check_mended(p, kind[0] == 's', kind[0] != 's');
    }
    private_path(p, 1, kind, path);
    for (int k = 1; k < 3 && p->s->rank == 0; k++) {
        snprintf(mine, sizeof mine, "%s.%d/mine", path, k);
        CHECK(unlink(mine) == 0);
        *strrchr(mine, '/') = '\0';
        CHECK(rmdir(mine) == 0);
    }
}

static void check_too_many(const private_files *p) {
    char path[PATH_MAX];
    dcp_error err = {0};
    for (int f = 0; f < 2; f++) {
        private_path(p, f, "shard", path);
        if (p->s->rank == 0) flip(path, 100);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check_lost(p, 0, 0, 0); /* lengths and headers are right */
    redundancy_survey *survey = private_survey(p, 1);
    check_same_failure(redundancy_survey_check(survey, &err), DCP_ERR_CORRUPT, &err,
                       "shards 0, 1 and the redundancy files of shards (none) are damaged");
    CHECK(strstr(err.message, "rs(1) survives only the loss of 1"));
    redundancy_survey_close(survey);
    private_restore(p);
}

static void check_other_content(const private_files *p) {
    char path[PATH_MAX], other[PATH_MAX];
    private_path(p, 2, "shard", path);
    private_path(p, 0, "shard", other);
    size_t bytes;
    unsigned char *data = private_read(other, &bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) private_write(path, data, lengths[2]); /* of the right length */
    check_mended(p, 1, 0);
    if (p->s->rank == 0) private_write(path, data, lengths[2] + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    check_lost(p, 0, 1, 0);
    check_mended(p, 1, 0);
    private_path(p, 1, "parity", path);
    private_path(p, 0, "parity", other);
    free(data);
    data = private_read(other, &bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) private_write(path, data, bytes); /* another member's */
    check_mended(p, 0, 1);
    free(data);
}

/* The ranks save the step again, but one node still has its earlier files. */
static void check_earlier_save(private_files *p) {
    char path[PATH_MAX], redundancy[PATH_MAX];
    unsigned char *shard, *parity;
    size_t shard_bytes, parity_bytes;
    const scratch *s = p->s;
    private_path(p, 0, "shard", path);
    private_path(p, 0, "parity", redundancy);
    shard = private_read(path, &shard_bytes);
    parity = private_read(redundancy, &parity_bytes);
    private_end(p);
    private_salt++;
    private_save(p, s, s->comm, 3, 1, "rs(1)", lengths);
    if (p->s->rank == 0) private_write(path, shard, shard_bytes);
    if (p->s->rank == 0) private_write(redundancy, parity, parity_bytes);
    check_mended(p, 1, 1);
    free(shard);
    free(parity);
}

/* Copies a file of node `from` to node `to`, as if it had been rebuilt there. Sets `path` to the
 * copy's path. */
static void copy_to(const private_files *p, int from, const char *kind, int to, char *path) {
    char original[PATH_MAX];
    size_t bytes = 0;
    private_path(p, from, kind, original);
    private_folder(p, to, path);
    strcat(path, strrchr(original, '/'));
    if (p->s->rank) return;
    unsigned char *data = private_read(original, &bytes);
    CHECK(data);
    private_write(path, data, bytes);
    free(data);
}

static void damage(const private_files *p, int node, const char *kind) {
    char path[PATH_MAX];
    private_path(p, node, kind, path);
    if (p->s->rank == 0) flip(path, 8900); /* behind the header of a redundancy file */
}

/* A file was rebuilt on another node while its own was away; then that node comes back with a
 * damaged file, which a load would read first. */
static void check_copies(const private_files *p, const char *kind) {
    char copy[PATH_MAX], second[PATH_MAX], path[PATH_MAX];
    const int is_shard = kind[0] == 's';
    private_path(p, 0, kind, path);
    copy_to(p, 0, kind, 1, copy);
    damage(p, 0, kind);
    MPI_Barrier(MPI_COMM_WORLD);
    check_lost(p, 0, 0, 0); /* its length and its header are right */
    check_mended(p, is_shard, !is_shard);
    check_lost(p, 1, 0, 0);

    if (p->s->rank == 0) CHECK(truncate(path, 4000) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    check_lost(p, 0, is_shard, !is_shard);
    check_mended(p, is_shard, !is_shard);

    if (p->s->rank == 0) CHECK(truncate(copy, 4000) == 0); /* no load on these ranks reads it */
    check_mended(p, is_shard, !is_shard);
    check_lost(p, 1, 0, 0);

    copy_to(p, 0, kind, 2, second);
    damage(p, 0, kind);
    if (p->s->rank == 0) flip(copy, 8900);
    check_mended(p, is_shard, !is_shard);
    check_lost(p, 1, 0, 0);
    if (p->s->rank == 0) CHECK(unlink(copy) == 0 && unlink(second) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* More files are damaged than redundancy can restore, but there are intact copies of them. */
static void check_copies_suffice(const private_files *p) {
    char copies[2][PATH_MAX];
    for (int f = 0; f < 2; f++) {
        copy_to(p, f, "shard", 2, copies[f]);
        damage(p, f, "shard");
    }
    check_mended(p, 2, 0);
    for (int f = 0; f < 2 && p->s->rank == 0; f++) CHECK(unlink(copies[f]) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A damaged copy that cannot be replaced does not keep lost files from being rebuilt. */
static void check_a_copy_that_stays(const private_files *p) {
    char copy[PATH_MAX], path[PATH_MAX], lost[PATH_MAX], folder[PATH_MAX], own[PATH_MAX];
    char tmp[2 * PATH_MAX];
    private_path(p, 0, "parity", path);
    private_path(p, 2, "shard", lost);
    private_folder(p, 0, folder);
    private_folder(p, p->s->rank / p->ranks_a_node, own);
    snprintf(tmp, sizeof tmp, "%s/.tmp-%s", folder, strrchr(path, '/') + 1);
    copy_to(p, 0, "parity", 1, copy);
    damage(p, 0, "parity");
    if (p->s->rank == 0) CHECK(mkdir(tmp, 0777) == 0 && unlink(lost) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    redundancy_survey *survey = private_survey(p, 1);
    CHECK(redundancy_reconstruct(p->s->comm, survey, own, NULL) == DCP_ERR_IO);
    redundancy_survey_close(survey);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(access(lost, F_OK) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) CHECK(rmdir(tmp) == 0 && unlink(copy) == 0);
    check_mended(p, 0, 1);
}

static void check_every_flip_is_found(const private_files *p) {
    char path[PATH_MAX], folder[PATH_MAX];
    struct stat st;
    if (p->s->rank) return;
    private_path(p, 1, "parity", path);
    private_folder(p, 1, folder);
    CHECK(damages_found(folder) == 0 && stat(path, &st) == 0);
    for (off_t at = 0; at < st.st_size; at += at < 512 ? 1 : 5) {
        flip(path, (size_t)at);
        CHECK(damages_found(folder) == 1);
        flip(path, (size_t)at);
    }
    for (int longer = 0; longer < 2; longer++) {
        CHECK(truncate(path, st.st_size - 1 + 2 * longer) == 0);
        CHECK(damages_found(folder) == 1);
        CHECK(truncate(path, st.st_size) == 0);
    }
}

int main(int argc, char **argv) {
    scratch s;
    private_files p;
    char path[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size == 3);
    private_save(&p, &s, s.comm, s.size, 1, "rs(1)", lengths);
    check_flips(&p, "shard");
    check_flips(&p, "parity");
    check_directories(&p, "shard");
    check_directories(&p, "parity");
    private_path(&p, 2, "parity", path);
    if (s.rank == 0) CHECK(unlink(path) == 0); /* only this one is missing */
    check_mended(&p, 0, 1);
    check_too_many(&p);
    check_other_content(&p);
    check_copies(&p, "shard");
    check_copies(&p, "parity");
    check_copies_suffice(&p);
    check_a_copy_that_stays(&p);
    check_every_flip_is_found(&p);
    check_earlier_save(&p);
    private_end(&p);
    return scratch_end(&s);
}
