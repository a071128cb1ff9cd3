/* Writing what is lost, some groups at a time: of each stripe, enough strips that are left go to
 * the ranks that write the others. A rebuilt shard gets its name when its checksum is that which
 * the redundancy files know; the sources of all are files that the survey has read whole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "core/userblock.h"
#include "io/file.h"
#include "redundancy/output.h"
#include "redundancy/survey.h"

#define GROUPS_AT_ONCE 64

/* A file of a group: read where it is, or written where it is lost. */
typedef struct slot {
    int rank;
    strip_file in; /* on `rank`, where it is not lost */
    output out;    /* on `rank`, where it is */
} slot;

typedef struct group_work {
    int leader;
    code_group group;
    int numbers[REDUNDANCY_MAX_MEMBERS];
    slot slots[2][REDUNDANCY_MAX_MEMBERS]; /* shards, redundancy files */
} group_work;

typedef struct rebuilder {
    dcp_comm *comm;
    redundancy_survey *survey;
    const char *folder;
    group_work *works;
    int n_works;
    stripe *stripes;
    size_t n_stripes;
} rebuilder;

static int file_number(const rebuilder *r, const group_work *w, int redundant, int member) {
    return w->numbers[member] + (redundant ? r->survey->world : 0);
}

static survey_place *place_of(const rebuilder *r, const group_work *w, int redundant, int member) {
    return &r->survey->files[file_number(r, w, redundant, member)];
}

static int has_losses(const rebuilder *r, const group_work *w) {
    for (int m = 0; m < w->group.members; m++)
        if (place_of(r, w, 0, m)->rank < 0 || place_of(r, w, 1, m)->rank < 0) return 1;
    return 0;
}

/* Whether a file of another member is, or will be, on the rank's node. */
static int has_other(const rebuilder *r, const group_work *w, int member, int rank) {
    const uint64_t *nodes = r->survey->nodes;
    for (int m = 0; m < w->group.members; m++)
        for (int k = 0; k < 2 && m != member; k++) {
            int at = w->slots[k][m].rank;
            if (at >= 0 && nodes[at] == nodes[rank]) return 1;
        }
    return 0;
}

/* Who writes a member's lost files: who has its other one, or a damaged copy; else a node that has
 * no other member, so that the next loss is survived as well. */
static int choose_writer(const rebuilder *r, const group_work *w, int member) {
    int size = r->comm->size, first = w->numbers[member] % size;
    for (int k = 0; k < 2; k++)
        if (w->slots[k][member].rank >= 0) return w->slots[k][member].rank;
    for (int k = 0; k < 2; k++)
        if (place_of(r, w, k, member)->damaged >= 0) return place_of(r, w, k, member)->damaged;
    for (int i = 0; i < size; i++)
        if (!has_other(r, w, member, (first + i) % size)) return (first + i) % size;
    return first;
}

static void begin_work(const rebuilder *r, group_work *w, int leader) {
    w->leader = leader;
    survey_group(r->survey, leader, &w->group, w->numbers);
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < w->group.members; m++)
            w->slots[k][m] =
                (slot){.rank = place_of(r, w, k, m)->rank, .in.fd = -1, .out.file.fd = -1};
    for (int m = 0; m < w->group.members; m++) {
        int writer = choose_writer(r, w, m);
        for (int k = 0; k < 2; k++)
            if (w->slots[k][m].rank < 0) w->slots[k][m].rank = writer;
    }
}

static int open_input(strip_file *in, const char *path, uint64_t start, uint64_t bytes,
                      dcp_error *err) {
    uint64_t file_bytes;
    *in = (strip_file){.path = path, .fd = -1, .start = start, .bytes = bytes};
    return io_open_regular(path, O_RDONLY, &in->fd, &file_bytes, err);
}

/* Where a damaged file is replaced, else this rank's folder, which is made. */
static int make_folder(const rebuilder *r, const group_work *w, int redundant, int member,
                       char *folder, dcp_error *err) {
    const redundancy_survey *s = r->survey;
    int file = file_number(r, w, redundant, member);
    for (size_t i = 0; i < s->n_found; i++) {
        const survey_found *f = &s->found[i];
        int number = (int)f->number + (f->kind == REDUNDANCY_NONE ? 0 : s->world);
        if (f->world != s->world || number != file) continue;
        snprintf(folder, PATH_MAX, "%.*s", (int)(strrchr(f->path, '/') - f->path), f->path);
        return DCP_OK;
    }
    if (snprintf(folder, PATH_MAX, "%s", r->folder) >= PATH_MAX - 64)
        return core_fail(err, DCP_ERR_ARG, "the path is too long: %s", r->folder);
    if (!mkdir(folder, 0777)) {
        char parent[PATH_MAX];
        snprintf(parent, sizeof parent, "%.4090s/..", folder);
        return io_sync_folder(parent, err);
    }
    return errno == EEXIST ? DCP_OK : core_fail_errno(err, "cannot make directory", folder);
}

static int open_output(const rebuilder *r, group_work *w, int redundant, int member,
                       const parity_header *h, dcp_error *err) {
    char folder[PATH_MAX], name[64];
    int number = w->numbers[member];
    int status = make_folder(r, w, redundant, member, folder, err);
    if (status) return status;
    output *out = &w->slots[redundant][member].out;
    if (!redundant) {
        parity_shard_name(name, (uint64_t)number, h->world);
        return output_begin(out, folder, name, 0, h->members[member].bytes, ONE_BLOCK, err);
    }
    parity_file_name(name, h->group.kind, (uint64_t)number, h->world);
    return output_begin(out, folder, name, parity_payload_start(h, member),
                        parity_payload_bytes(h, member), BLOCK_BYTES, err);
}

/* Opens what this rank reads and writes of a group. */
static int open_files(const rebuilder *r, group_work *w, dcp_error *err) {
    parity_header h;
    int status = DCP_OK;
    survey_header(r->survey, w->leader, 0, &h);
    for (int m = 0; m < w->group.members; m++)
        for (int k = 0; k < 2 && !status; k++) {
            const survey_place *place = place_of(r, w, k, m);
            if (w->slots[k][m].rank != r->comm->rank) continue;
            if (place->rank < 0)
                status = open_output(r, w, k, m, &h, err);
            else
                status =
                    open_input(&w->slots[k][m].in, place->path, k ? parity_payload_start(&h, m) : 0,
                               k ? parity_payload_bytes(&h, m) : h.members[m].bytes, err);
        }
    return status;
}

static strip strip_at(const rebuilder *r, group_work *w, const code_strip *at, uint64_t bytes) {
    slot *from = &w->slots[at->redundant][at->member];
    strip s = {from->rank, NULL, (uint64_t)at->index * bytes};
    int lost = place_of(r, w, at->redundant, at->member)->rank < 0;
    if (s.rank == r->comm->rank) s.file = lost ? &from->out.file : &from->in;
    return s;
}

/* The rows of a stripe that are there, as many as it takes, and those that are not. */
static void sort_rows(const rebuilder *r, const group_work *w, const code_strip *rows, int *present,
                      int *lost, int *n_lost) {
    int n = 0;
    *n_lost = 0;
    for (int row = 0; row < code_strips(&w->group); row++) {
        if (place_of(r, w, rows[row].redundant, rows[row].member)->rank < 0)
            lost[(*n_lost)++] = row;
        else if (n < code_data_strips(&w->group))
            present[n++] = row;
    }
}

static int add_stripe(rebuilder *r, group_work *w, int number, uint64_t bytes, dcp_error *err) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    int present[REDUNDANCY_MAX_MEMBERS], lost[REDUNDANCY_MAX_MEMBERS], n_lost;
    int n = code_data_strips(&w->group);
    code_stripe(&w->group, number, rows);
    sort_rows(r, w, rows, present, lost, &n_lost);
    if (!n_lost) return DCP_OK;
    stripe *s = &r->stripes[r->n_stripes++];
    if (stripe_allocate(s, n, n_lost)) return core_fail_memory(err, sizeof *s);
    s->bytes = bytes;
    for (int i = 0; i < n; i++) s->in[i] = strip_at(r, w, &rows[present[i]], bytes);
    for (int o = 0; o < n_lost; o++) {
        s->out[o] = strip_at(r, w, &rows[lost[o]], bytes);
        if (code_solve(&w->group, present, lost[o], s->coeffs + o * n))
            return core_fail_memory(err, (uint64_t)n * (uint64_t)n);
    }
    return DCP_OK;
}

static int begin_stripes(rebuilder *r, dcp_error *err) {
    size_t most = 0;
    int status = DCP_OK;
    for (int i = 0; i < r->n_works; i++) most += (size_t)r->works[i].group.members;
    r->stripes = calloc(most + 1, sizeof *r->stripes);
    if (!r->stripes) return core_fail_memory(err, most * sizeof *r->stripes);
    for (int i = 0; i < r->n_works && !status; i++) {
        group_work *w = &r->works[i];
        parity_header h;
        survey_header(r->survey, w->leader, 0, &h);
        status = open_files(r, w, err);
        for (int j = 0; j < w->group.members && !status; j++)
            status = add_stripe(r, w, j, parity_strip_bytes(&h, j), err);
    }
    return status;
}

static int finish_output(const rebuilder *r, group_work *w, int redundant, int member,
                         dcp_error *err) {
    output *out = &w->slots[redundant][member].out;
    parity_header h;
    int status = DCP_OK;
    survey_header(r->survey, w->leader, member, &h);
    if (redundant) status = output_header(out, &h, err);
    if (!redundant &&
        crc64_finish(out->file.raws[0], h.members[member].bytes) != h.members[member].crc)
        status = core_fail(err, DCP_ERR_CORRUPT,
                           "%s: rebuilt, its checksum is wrong: a file that it was made of has "
                           "changed meanwhile",
                           out->path);
    return status ? status : output_publish(out, err);
}

static int finish_outputs(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int i = 0; i < r->n_works; i++)
        for (int m = 0; m < r->works[i].group.members; m++)
            for (int k = 0; k < 2 && !status; k++)
                if (r->works[i].slots[k][m].out.file.fd >= 0)
                    status = finish_output(r, &r->works[i], k, m, err);
    return status;
}

/* The survey knows the rebuilt files from now on; their paths are its own. */
static void tell_survey(rebuilder *r) {
    for (int i = 0; i < r->n_works; i++) {
        group_work *w = &r->works[i];
        for (int m = 0; m < w->group.members; m++)
            for (int k = 0; k < 2; k++) {
                survey_place *place = place_of(r, w, k, m);
                if (place->rank >= 0) continue;
                char *path = w->slots[k][m].out.path;
                *place = (survey_place){w->slots[k][m].rank, -1, path, path != NULL};
                w->slots[k][m].out.path = NULL;
            }
    }
}

static void end_works(rebuilder *r) {
    for (int i = 0; i < r->n_works; i++)
        for (int m = 0; m < r->works[i].group.members; m++)
            for (int k = 0; k < 2; k++) {
                slot *s = &r->works[i].slots[k][m];
                if (s->in.fd >= 0) close(s->in.fd);
                output_end(&s->out);
            }
    stripes_free(r->stripes, r->n_stripes);
    r->stripes = NULL;
    r->n_stripes = 0;
    r->n_works = 0;
}

/* The groups that were collected. */
static int rebuild_works(rebuilder *r, dcp_error *err) {
    int status = comm_agree(r->comm, begin_stripes(r, err), err);
    if (!status) status = stripes_move(r->comm, r->stripes, r->n_stripes, err);
    if (!status) status = comm_agree(r->comm, finish_outputs(r, err), err);
    if (!status) tell_survey(r);
    end_works(r);
    return status;
}

/* As many groups at once as there are ranks, so that the work of one falls to a rank, usually. */
static int most_works(const dcp_comm *comm) {
    return comm->size < GROUPS_AT_ONCE ? comm->size : GROUPS_AT_ONCE;
}

static int rebuild_groups(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int f = 0; f < r->survey->world && !status; f++) {
        if (r->survey->shards[f].leader == f) {
            begin_work(r, &r->works[r->n_works], f);
            r->n_works += has_losses(r, &r->works[r->n_works]);
        }
        if (r->n_works == most_works(r->comm)) status = rebuild_works(r, err);
    }
    return !status && r->n_works ? rebuild_works(r, err) : status;
}

static int check_arguments(const redundancy_survey *s, const char *folder, dcp_error *err) {
    if (!s || !folder || !s->every_byte)
        return core_fail(err, DCP_ERR_ARG,
                         "redundancy_rebuild: a survey of every byte and a folder are needed");
    return redundancy_survey_check(s, err);
}

int redundancy_rebuild(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                       dcp_error *err) {
    rebuilder r = {.comm = comm, .survey = survey, .folder = folder};
    int status = check_arguments(survey, folder, err);
    size_t n = (size_t)most_works(comm);
    if (!status && !(r.works = calloc(n, sizeof *r.works)))
        status = core_fail_memory(err, n * sizeof *r.works);
    status = comm_agree(comm, status, err);
    if (!status) status = rebuild_groups(&r, err);
    free(r.works);
    return status;
}
