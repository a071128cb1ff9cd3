/* To find how many losses a group survives, its members in each domain are counted. A member counts
 * in each domain that has one of its two files. */
#include "redundancy/reconstruct.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/index.h"
#include "io/file.h"
#include "io/publish.h"
#include "redundancy/encode.h"

/* A domain, and the members of a group that have files in it. */
typedef struct domain_share {
    uint64_t domain;
    int n;
    unsigned char has[REDUNDANCY_MAX_MEMBERS];
} domain_share;

static int most_members_first(const void *a, const void *b) {
    return ((const domain_share *)b)->n - ((const domain_share *)a)->n;
}

static void add_member(domain_share *shares, int *n, uint64_t domain, int member) {
    int i = 0;
    while (i < *n && shares[i].domain != domain) i++;
    if (i == *n) shares[(*n)++] = (domain_share){.domain = domain};
    if (!shares[i].has[member]) shares[i].n++;
    shares[i].has[member] = 1;
}

/* Fills shares[2 * REDUNDANCY_MAX_MEMBERS] and returns how many were filled, or -1 if a file is
 * lost. */
static int share_out(const redundancy_survey *s, int leader, code_group *g, domain_share *shares) {
    int numbers[REDUNDANCY_MAX_MEMBERS], n = 0;
    redundancy_survey_group(s, leader, g, numbers);
    for (int m = 0; m < g->members; m++)
        for (int k = 0; k < 2; k++) {
            int rank = s->files[numbers[m] + k * s->world].rank;
            if (rank < 0) return -1;
            add_member(shares, &n, s->domains[rank], m);
        }
    return n;
}

static bool has_neighbours(const domain_share *share, int members) {
    for (int m = 0; m < members; m++)
        if (share->has[m] && share->has[(m + 1) % members]) return true;
    return false;
}

static int survived_by_group(const redundancy_survey *s, int leader) {
    domain_share shares[2 * REDUNDANCY_MAX_MEMBERS];
    code_group g;
    int lost = 0, n = share_out(s, leader, &g, shares);
    if (n < 0) return 0;
    if (g.kind == REDUNDANCY_PARTNER) {
        for (int i = 0; i < n; i++)
            if (has_neighbours(&shares[i], g.members)) return 0;
        return 1;
    }
    qsort(shares, (size_t)n, sizeof *shares, most_members_first);
    for (int i = 0; i < n; i++)
        if ((lost += shares[i].n) > g.lost) return i;
    return n;
}

int redundancy_losses_survived(const redundancy_survey *s) {
    int least = s->lost;
    for (int f = 0; f < s->world; f++) {
        if (s->shards[f].leader < 0) return 0;
        int here = s->shards[f].leader == f ? survived_by_group(s, f) : least;
        if (here < least) least = here;
    }
    return least;
}

/* Groups are rebuilt a few at a time. For each stripe, just enough intact strips are sent to the
 * ranks that write the lost ones. A rebuilt shard gets its name only if it has the checksum that
 * the redundancy files contain. The survey has checked every byte of all files that are read. */

#define GROUPS_AT_ONCE 64

/* The context of a rebuild. All members are borrowed. */
typedef struct rebuild_site {
    dcp_comm *comm;
    redundancy_survey *survey;
    const char *folder; /* this rank's folder for lost files; made if needed */
    bool mends;         /* replaces damaged copies of files, after all lost files were rebuilt */
} rebuild_site;

/* A file of a group, which is read if it exists and written if it is lost. A damaged copy beside an
 * intact one is written from that one. */
typedef struct rebuild_slot {
    int rank;              /* the rank that has the file, or will have it */
    int writer;            /* the rank that writes it; -1: none */
    strip_file in;         /* on `rank`, if the file is not lost */
    redundancy_output out; /* on `writer` */
} rebuild_slot;

typedef struct rebuild_group {
    int leader;
    code_group group;
    int numbers[REDUNDANCY_MAX_MEMBERS];           /* the members' shards */
    rebuild_slot slots[2][REDUNDANCY_MAX_MEMBERS]; /* shards, redundancy files */
} rebuild_group;

static int file_number(const rebuild_site *at, const rebuild_group *g, int redundant, int member) {
    return g->numbers[member] + (redundant ? at->survey->world : 0);
}

static survey_place *place_of_file(const rebuild_site *at, const rebuild_group *g, int redundant,
                                   int member) {
    return &at->survey->files[file_number(at, g, redundant, member)];
}

/* Returns true if the member's shard or, if `redundant`, its redundancy file is lost. */
static bool is_lost_file(const rebuild_site *at, const rebuild_group *g, bool redundant,
                         int member) {
    return place_of_file(at, g, redundant, member)->rank < 0;
}

/* Returns true if a file of another member is, or will be, in the rank's failure domain. */
static bool has_other(const rebuild_site *at, const rebuild_group *g, int member, int rank) {
    const uint64_t *domains = at->survey->domains;
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && m != member; k++) {
            int other = g->slots[k][m].rank;
            if (other >= 0 && domains[other] == domains[rank]) return true;
        }
    return false;
}

/* Chooses the rank that writes a member's lost files: the rank that has the member's other file; if
 * there is none, a rank that has a damaged copy; otherwise, if possible, a rank whose failure
 * domain has no other members of the group, so the step can survive the next loss as well. */
static int choose_writer(const rebuild_site *at, const rebuild_group *g, int member) {
    int size = at->comm->size, first = g->numbers[member] % size;
    for (int k = 0; k < 2; k++)
        if (g->slots[k][member].rank >= 0) return g->slots[k][member].rank;
    for (int k = 0; k < 2; k++)
        if (place_of_file(at, g, k, member)->damaged >= 0)
            return place_of_file(at, g, k, member)->damaged;
    for (int i = 0; i < size; i++)
        if (!has_other(at, g, member, (first + i) % size)) return (first + i) % size;
    return first;
}

/* Makes the group that shard `leader` leads, and chooses a rank for every file, the same on all
 * ranks. Returns true if any file of the group is to be written. */
static bool begin_group(const rebuild_site *at, int leader, rebuild_group *g) {
    g->leader = leader;
    redundancy_survey_group(at->survey, leader, &g->group, g->numbers);
    bool has_losses = false;
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < g->group.members; m++) {
            const survey_place *place = place_of_file(at, g, k, m);
            const bool mends =
                at->mends && redundancy_survey_mends(at->survey, file_number(at, g, k, m));
            g->slots[k][m] = (rebuild_slot){.rank = place->rank,
                                            .writer = mends ? place->damaged : -1,
                                            .in.fd = -1,
                                            .out.file.fd = -1};
            has_losses |= mends;
        }
    for (int m = 0; m < g->group.members; m++) {
        int writer = choose_writer(at, g, m);
        for (int k = 0; k < 2; k++) {
            if (g->slots[k][m].rank >= 0) continue;
            g->slots[k][m].rank = g->slots[k][m].writer = writer;
            has_losses = true;
        }
    }
    return has_losses;
}

static int open_input(strip_file *in, const char *path, uint64_t start, uint64_t bytes,
                      dcp_error *err) {
    uint64_t file_bytes;
    *in = (strip_file){.path = path, .fd = -1, .start = start, .bytes = bytes};
    return io_open_regular(path, O_RDONLY, &in->fd, &file_bytes, err);
}

/* Sets `folder` to the folder of the damaged file that will be replaced, if this rank has found
 * one; otherwise makes this rank's folder. */
static int make_folder(const rebuild_site *at, const rebuild_group *g, int redundant, int member,
                       char *folder, dcp_error *err) {
    const redundancy_survey *s = at->survey;
    int file = file_number(at, g, redundant, member);
    for (size_t i = 0; i < s->n_found; i++) {
        const survey_found *f = &s->found[i];
        int number = (int)f->number + (f->kind == REDUNDANCY_NONE ? 0 : s->world);
        if (f->usable || f->world != s->world || number != file) continue;
        snprintf(folder, PATH_MAX, "%.*s", (int)(strrchr(f->path, '/') - f->path), f->path);
        return DCP_OK;
    }
    if (snprintf(folder, PATH_MAX, "%s", at->folder) >= PATH_MAX - 64)
        return core_fail(err, DCP_ERR_ARG, "the path is too long: %s", at->folder);
    if (mkdir(folder, 0777))
        return errno == EEXIST ? DCP_OK : core_fail_errno(err, "cannot make directory", folder);
    return io_publish_sync_parent(folder) ? core_fail_errno(err, "cannot sync", folder) : DCP_OK;
}

static int open_output(const rebuild_site *at, rebuild_group *g, int redundant, int member,
                       const parity_header *h, dcp_error *err) {
    char folder[PATH_MAX], name[64];
    int number = g->numbers[member];
    int status = make_folder(at, g, redundant, member, folder, err);
    if (status) return status;
    redundancy_output *out = &g->slots[redundant][member].out;
    if (!redundant) {
        redundancy_parity_shard_name(name, (uint64_t)number, h->world);
        return redundancy_output_begin(out, folder, name, 0, h->members[member].bytes, ONE_BLOCK,
                                       err);
    }
    redundancy_parity_file_name(name, h->group.kind, (uint64_t)number, h->world);
    return redundancy_output_begin(out, folder, name, redundancy_parity_payload_start(h, member),
                                   redundancy_parity_payload_bytes(h, member), BLOCK_BYTES, err);
}

/* Opens the files of the group that this rank reads or writes. end_group must close them whether or
 * not this succeeds; it removes files that were not finished. */
static int open_group(const rebuild_site *at, rebuild_group *g, dcp_error *err) {
    parity_header h;
    int status = DCP_OK;
    redundancy_survey_header(at->survey, g->leader, 0, &h);
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && !status; k++) {
            const survey_place *place = place_of_file(at, g, k, m);
            if (g->slots[k][m].writer == at->comm->rank) status = open_output(at, g, k, m, &h, err);
            if (place->rank == at->comm->rank && !status)
                status = open_input(
                    &g->slots[k][m].in, place->path, k ? redundancy_parity_payload_start(&h, m) : 0,
                    k ? redundancy_parity_payload_bytes(&h, m) : h.members[m].bytes, err);
        }
    return status;
}

/* If somebody made a directory in the file's place, removes it if it is empty, and otherwise gives
 * it another name. */
static int move_directory(const char *path, dcp_error *err) {
    char other[PATH_MAX];
    if (rmdir(path) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) return DCP_OK;
    for (unsigned k = 1; snprintf(other, sizeof other, "%s.%u", path, k) < PATH_MAX; k++) {
        if (rename(path, other) == 0) return DCP_OK;
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) break;
    }
    return core_fail_errno(err, "cannot rename the directory that is in the place of a file,",
                           path);
}

static int finish_output(const rebuild_site *at, rebuild_group *g, int redundant, int member,
                         dcp_error *err) {
    redundancy_output *out = &g->slots[redundant][member].out;
    parity_header h;
    int status = DCP_OK;
    redundancy_survey_header(at->survey, g->leader, member, &h);
    if (redundant) status = redundancy_output_header(out, &h, err);
    if (!redundant &&
        core_crc64_finish(out->file.raws[0], h.members[member].bytes) != h.members[member].crc)
        status = core_fail_at(err, DCP_ERR_CORRUPT, out->path,
                              "its checksum is wrong after the rebuild: a file from which it was "
                              "rebuilt has changed meanwhile");
    if (!status) status = move_directory(out->path, err);
    return status ? status : redundancy_output_publish(out, err);
}

/* Gives this rank's new files their names. Returns DCP_ERR_CORRUPT if a shard does not have the
 * checksum that the redundancy files contain. */
static int publish_group(const rebuild_site *at, rebuild_group *g, dcp_error *err) {
    int status = DCP_OK;
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && !status; k++)
            if (g->slots[k][m].out.file.fd >= 0) status = finish_output(at, g, k, m, err);
    return status;
}

/* Enters the new files into the survey, which then owns their paths. */
static void add_to_survey(const rebuild_site *at, rebuild_group *g) {
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2; k++) {
            if (g->slots[k][m].writer < 0) continue;
            char *path = g->slots[k][m].out.path;
            *place_of_file(at, g, k, m) =
                (survey_place){g->slots[k][m].writer, -1, path, false, path != NULL};
            g->slots[k][m].out.path = NULL;
        }
}

static void end_group(rebuild_group *g) {
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2; k++) {
            rebuild_slot *s = &g->slots[k][m];
            if (s->in.fd >= 0) close(s->in.fd);
            redundancy_output_end(&s->out);
        }
}

typedef struct rebuilder {
    rebuild_site at;
    rebuild_group *groups; /* the groups that are rebuilt together, each with losses */
    int n_groups;
    stripe *stripes;
    size_t n_stripes;
    comm_stop stop;
} rebuilder;

static strip strip_of_file(const rebuilder *r, rebuild_group *g, const code_strip *at,
                           uint64_t bytes) {
    assert(at->member >= 0 && at->member < g->group.members);
    rebuild_slot *from = &g->slots[at->redundant][at->member];
    strip s = {from->rank, NULL, (uint64_t)at->index * bytes};
    bool lost = is_lost_file(&r->at, g, at->redundant, at->member);
    if (s.rank == r->at.comm->rank) s.file = lost ? &from->out.file : &from->in;
    return s;
}

/* Finds the rows of a stripe that are lost, and as many of the other rows as are necessary to
 * compute them. */
static void sort_rows(const rebuilder *r, const rebuild_group *g, const code_strip *rows,
                      int *present, int *lost, int *n_lost) {
    int n = 0;
    *n_lost = 0;
    for (int row = 0; row < redundancy_code_strips(&g->group); row++) {
        if (is_lost_file(&r->at, g, rows[row].redundant, rows[row].member))
            lost[(*n_lost)++] = row;
        else if (n < redundancy_code_data_strips(&g->group))
            present[n++] = row;
    }
}

static int add_stripe(rebuilder *r, rebuild_group *g, int number, uint64_t bytes, dcp_error *err) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    int present[REDUNDANCY_MAX_MEMBERS], lost[REDUNDANCY_MAX_MEMBERS], n_lost;
    int n = redundancy_code_data_strips(&g->group);
    redundancy_code_stripe(&g->group, number, rows);
    sort_rows(r, g, rows, present, lost, &n_lost);
    if (!n_lost) return DCP_OK;
    stripe *s = &r->stripes[r->n_stripes++];
    if (redundancy_stripe_allocate(s, n, n_lost)) return core_fail_memory(err, sizeof *s);
    s->bytes = bytes;
    for (int i = 0; i < n; i++) s->in[i] = strip_of_file(r, g, &rows[present[i]], bytes);
    for (int o = 0; o < n_lost; o++) {
        s->out[o] = strip_of_file(r, g, &rows[lost[o]], bytes);
        if (redundancy_code_solve(&g->group, present, lost[o], s->coeffs + o * n))
            return core_fail_memory(err, (uint64_t)n * (uint64_t)n);
    }
    return DCP_OK;
}

/* Adds a stripe that copies the member's file over its damaged copy, if there is one. */
static int add_copy(rebuilder *r, rebuild_group *g, int redundant, int member, uint64_t bytes,
                    dcp_error *err) {
    rebuild_slot *file = &g->slots[redundant][member];
    if (!r->at.mends ||
        !redundancy_survey_mends(r->at.survey, file_number(&r->at, g, redundant, member)))
        return DCP_OK;
    stripe *s = &r->stripes[r->n_stripes++];
    if (redundancy_stripe_allocate(s, 1, 1)) return core_fail_memory(err, sizeof *s);
    const int me = r->at.comm->rank;
    s->bytes = core_round_to_pages(bytes);
    s->in[0] = (strip){file->rank, file->rank == me ? &file->in : NULL, 0};
    s->out[0] = (strip){file->writer, file->writer == me ? &file->out.file : NULL, 0};
    s->coeffs[0] = 1;
    return DCP_OK;
}

static int add_copies(rebuilder *r, rebuild_group *g, const parity_header *h, dcp_error *err) {
    int status = DCP_OK;
    for (int m = 0; m < g->group.members && !status; m++) {
        status = add_copy(r, g, 0, m, h->members[m].bytes, err);
        if (!status) status = add_copy(r, g, 1, m, redundancy_parity_payload_bytes(h, m), err);
    }
    return status;
}

static int begin_stripes(rebuilder *r, dcp_error *err) {
    size_t most = 0;
    int status = DCP_OK;
    for (int i = 0; i < r->n_groups; i++) most += 3 * (size_t)r->groups[i].group.members;
    r->stripes = calloc(most + 1, sizeof *r->stripes);
    if (!r->stripes) return core_fail_memory(err, most * sizeof *r->stripes);
    for (int i = 0; i < r->n_groups && !status; i++) {
        rebuild_group *g = &r->groups[i];
        parity_header h;
        redundancy_survey_header(r->at.survey, g->leader, 0, &h);
        status = open_group(&r->at, g, err);
        for (int j = 0; j < g->group.members && !status; j++)
            status = add_stripe(r, g, j, redundancy_parity_strip_bytes(&h, j), err);
        if (!status) status = add_copies(r, g, &h, err);
    }
    return status;
}

static int finish_groups(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int i = 0; i < r->n_groups && !status; i++)
        status = publish_group(&r->at, &r->groups[i], err);
    return status;
}

static void end_groups(rebuilder *r) {
    for (int i = 0; i < r->n_groups; i++) end_group(&r->groups[i]);
    redundancy_stripes_free(r->stripes, r->n_stripes);
    r->stripes = NULL;
    r->n_stripes = 0;
    r->n_groups = 0;
}

/* Rebuilds the groups in r->groups. */
static int rebuild_collected(rebuilder *r, dcp_error *err) {
    int status = comm_agree(r->at.comm, begin_stripes(r, err), err);
    if (!status)
        status = redundancy_stripes_move(r->at.comm, r->stripes, r->n_stripes, &r->stop, err);
    if (!status) status = comm_agree(r->at.comm, finish_groups(r, err), err);
    for (int i = 0; i < r->n_groups && !status; i++) add_to_survey(&r->at, &r->groups[i]);
    end_groups(r);
    return status;
}

/* Returns how many groups are rebuilt at once: as many as there are ranks, so usually each rank
 * does the work of one group. */
static int most_groups(const dcp_comm *comm) {
    return comm->size < GROUPS_AT_ONCE ? comm->size : GROUPS_AT_ONCE;
}

static int rebuild_groups(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int f = 0; f < r->at.survey->world && !status; f++) {
        if (r->at.survey->shards[f].leader == f)
            r->n_groups += begin_group(&r->at, f, &r->groups[r->n_groups]);
        if (r->n_groups == most_groups(r->at.comm)) status = rebuild_collected(r, err);
    }
    return !status && r->n_groups ? rebuild_collected(r, err) : status;
}

static int check_survey(const redundancy_survey *s, const char *folder, dcp_error *err) {
    if (!s || !folder || !s->every_byte)
        return core_fail(err, DCP_ERR_ARG,
                         "redundancy_reconstruct: a survey of every byte and a folder are needed");
    return redundancy_survey_check(s, err);
}

int redundancy_reconstruct(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                           dcp_error *err) {
    rebuilder r = {
        .at = {.comm = comm, .survey = survey, .folder = folder},
        .stop = comm_stop_of(comm, "the rebuild", "files that were complete by then remain")};
    int status = check_survey(survey, folder, err);
    size_t n = (size_t)most_groups(comm);
    if (!status && !(r.groups = calloc(n, sizeof *r.groups)))
        status = core_fail_memory(err, n * sizeof *r.groups);
    status = comm_agree(comm, status, err);
    if (!status) status = rebuild_groups(&r, err);
    r.at.mends = true;
    if (!status) status = rebuild_groups(&r, err);
    free(r.groups);
    return status;
}
