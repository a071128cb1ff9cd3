#include "redundancy/rebuild_group.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "io/file.h"
#include "step/userblock.h"

static int file_number(const rebuild_site *at, const rebuild_group *g, int redundant, int member) {
    return g->numbers[member] + (redundant ? at->survey->world : 0);
}

static survey_place *place_of(const rebuild_site *at, const rebuild_group *g, int redundant,
                              int member) {
    return &at->survey->files[file_number(at, g, redundant, member)];
}

int rebuild_group_lacks(const rebuild_site *at, const rebuild_group *g, int redundant, int member) {
    return place_of(at, g, redundant, member)->rank < 0;
}

static int has_losses(const rebuild_site *at, const rebuild_group *g) {
    for (int m = 0; m < g->group.members; m++)
        if (rebuild_group_lacks(at, g, 0, m) || rebuild_group_lacks(at, g, 1, m)) return 1;
    return 0;
}

/* Whether a file of another member is, or will be, on the rank's node. */
static int has_other(const rebuild_site *at, const rebuild_group *g, int member, int rank) {
    const uint64_t *nodes = at->survey->nodes;
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && m != member; k++) {
            int other = g->slots[k][m].rank;
            if (other >= 0 && nodes[other] == nodes[rank]) return 1;
        }
    return 0;
}

/* Who writes a member's lost files: who has its other one, or a damaged copy; else a node that has
 * no other member, so that the next loss is survived as well. */
static int choose_writer(const rebuild_site *at, const rebuild_group *g, int member) {
    int size = at->comm->size, first = g->numbers[member] % size;
    for (int k = 0; k < 2; k++)
        if (g->slots[k][member].rank >= 0) return g->slots[k][member].rank;
    for (int k = 0; k < 2; k++)
        if (place_of(at, g, k, member)->damaged >= 0) return place_of(at, g, k, member)->damaged;
    for (int i = 0; i < size; i++)
        if (!has_other(at, g, member, (first + i) % size)) return (first + i) % size;
    return first;
}

int rebuild_group_begin(const rebuild_site *at, int leader, rebuild_group *g) {
    g->leader = leader;
    survey_group(at->survey, leader, &g->group, g->numbers);
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < g->group.members; m++)
            g->slots[k][m] =
                (rebuild_slot){.rank = place_of(at, g, k, m)->rank, .in.fd = -1, .out.file.fd = -1};
    for (int m = 0; m < g->group.members; m++) {
        int writer = choose_writer(at, g, m);
        for (int k = 0; k < 2; k++)
            if (g->slots[k][m].rank < 0) g->slots[k][m].rank = writer;
    }
    return has_losses(at, g);
}

static int open_input(strip_file *in, const char *path, uint64_t start, uint64_t bytes,
                      dcp_error *err) {
    uint64_t file_bytes;
    *in = (strip_file){.path = path, .fd = -1, .start = start, .bytes = bytes};
    return io_open_regular(path, O_RDONLY, &in->fd, &file_bytes, err);
}

/* Where a damaged file is replaced, else this rank's folder, which is made. */
static int make_folder(const rebuild_site *at, const rebuild_group *g, int redundant, int member,
                       char *folder, dcp_error *err) {
    const redundancy_survey *s = at->survey;
    int file = file_number(at, g, redundant, member);
    for (size_t i = 0; i < s->n_found; i++) {
        const survey_found *f = &s->found[i];
        int number = (int)f->number + (f->kind == REDUNDANCY_NONE ? 0 : s->world);
        if (f->world != s->world || number != file) continue;
        snprintf(folder, PATH_MAX, "%.*s", (int)(strrchr(f->path, '/') - f->path), f->path);
        return DCP_OK;
    }
    if (snprintf(folder, PATH_MAX, "%s", at->folder) >= PATH_MAX - 64)
        return core_fail(err, DCP_ERR_ARG, "the path is too long: %s", at->folder);
    if (!mkdir(folder, 0777)) {
        char parent[PATH_MAX];
        snprintf(parent, sizeof parent, "%.4090s/..", folder);
        return io_sync_folder(parent, err);
    }
    return errno == EEXIST ? DCP_OK : core_fail_errno(err, "cannot make directory", folder);
}

static int open_output(const rebuild_site *at, rebuild_group *g, int redundant, int member,
                       const parity_header *h, dcp_error *err) {
    char folder[PATH_MAX], name[64];
    int number = g->numbers[member];
    int status = make_folder(at, g, redundant, member, folder, err);
    if (status) return status;
    output *out = &g->slots[redundant][member].out;
    if (!redundant) {
        parity_shard_name(name, (uint64_t)number, h->world);
        return output_begin(out, folder, name, 0, h->members[member].bytes, ONE_BLOCK, err);
    }
    parity_file_name(name, h->group.kind, (uint64_t)number, h->world);
    return output_begin(out, folder, name, parity_payload_start(h, member),
                        parity_payload_bytes(h, member), BLOCK_BYTES, err);
}

int rebuild_group_open(const rebuild_site *at, rebuild_group *g, dcp_error *err) {
    parity_header h;
    int status = DCP_OK;
    survey_header(at->survey, g->leader, 0, &h);
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && !status; k++) {
            const survey_place *place = place_of(at, g, k, m);
            if (g->slots[k][m].rank != at->comm->rank) continue;
            if (place->rank < 0)
                status = open_output(at, g, k, m, &h, err);
            else
                status =
                    open_input(&g->slots[k][m].in, place->path, k ? parity_payload_start(&h, m) : 0,
                               k ? parity_payload_bytes(&h, m) : h.members[m].bytes, err);
        }
    return status;
}

static int finish_output(const rebuild_site *at, rebuild_group *g, int redundant, int member,
                         dcp_error *err) {
    output *out = &g->slots[redundant][member].out;
    parity_header h;
    int status = DCP_OK;
    survey_header(at->survey, g->leader, member, &h);
    if (redundant) status = output_header(out, &h, err);
    if (!redundant &&
        core_crc64_finish(out->file.raws[0], h.members[member].bytes) != h.members[member].crc)
        status = core_fail(err, DCP_ERR_CORRUPT,
                           "%s: rebuilt, its checksum is wrong: a file that it was made of has "
                           "changed meanwhile",
                           out->path);
    return status ? status : output_publish(out, err);
}

int rebuild_group_finish(const rebuild_site *at, rebuild_group *g, dcp_error *err) {
    int status = DCP_OK;
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2 && !status; k++)
            if (g->slots[k][m].out.file.fd >= 0) status = finish_output(at, g, k, m, err);
    return status;
}

void rebuild_group_tell(const rebuild_site *at, rebuild_group *g) {
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2; k++) {
            survey_place *place = place_of(at, g, k, m);
            if (place->rank >= 0) continue;
            char *path = g->slots[k][m].out.path;
            *place = (survey_place){g->slots[k][m].rank, -1, path, path != NULL};
            g->slots[k][m].out.path = NULL;
        }
}

void rebuild_group_end(rebuild_group *g) {
    for (int m = 0; m < g->group.members; m++)
        for (int k = 0; k < 2; k++) {
            rebuild_slot *s = &g->slots[k][m];
            if (s->in.fd >= 0) close(s->in.fd);
            output_end(&s->out);
        }
}
