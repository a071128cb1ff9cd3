/* Where the files of a step are, and whether that is enough.
 *
 * Of each file one intact copy is chosen; a rank that finds its copy damaged withdraws it, and the
 * choice is made anew until none is withdrawn. */
#include "redundancy/survey.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "io/file.h"
#include "step/userblock.h"

enum { LEADER, MEMBER, MEMBERS, BYTES, CRC, FIELDS };

static void enter(const parity_header *h, uint64_t *fields) {
    for (int m = 0; m < h->group.members; m++) {
        uint64_t *at = fields + h->members[m].number * FIELDS;
        at[LEADER] = h->members[0].number + 1;
        at[MEMBER] = (uint64_t)m;
        at[MEMBERS] = (uint64_t)h->group.members;
        at[BYTES] = h->members[m].bytes;
        at[CRC] = h->members[m].crc;
    }
}

/* Every member of the leader's group must say so itself, each another number. */
static int is_whole_group(const redundancy_survey *s, int leader) {
    char seen[REDUNDANCY_MAX_MEMBERS] = {0};
    int n = 0, members = s->shards[leader].members;
    for (int f = 0; f < s->world; f++) {
        const survey_shard *shard = &s->shards[f];
        if (shard->leader != leader) continue;
        if (shard->members != members || shard->member >= members || seen[shard->member]++)
            return 0;
        n++;
    }
    return n == members && s->shards[leader].member == 0 && members > s->lost;
}

/* Groups of which only forged files tell different things are as unknown. */
static void keep_whole_groups(redundancy_survey *s) {
    for (int f = 0; f < s->world; f++) {
        int leader = s->shards[f].leader;
        if (leader < 0 || leader == f) continue;
        if (s->shards[leader].leader != leader) s->shards[f].leader = -1;
    }
    for (int f = 0; f < s->world; f++) {
        if (s->shards[f].leader != f || is_whole_group(s, f)) continue;
        for (int other = 0; other < s->world; other++)
            if (s->shards[other].leader == f) s->shards[other].leader = -1;
    }
}

/* What all redundancy files say of the shards. */
static int learn_shards(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    size_t world = (size_t)s->world;
    uint64_t *fields = calloc(world * FIELDS, sizeof *fields);
    s->shards = calloc(world, sizeof *s->shards);
    s->files = calloc(2 * world, sizeof *s->files);
    int status = DCP_OK;
    if (!fields || !s->shards || !s->files) status = core_fail_memory(err, world * FIELDS * 8);
    status = comm_agree(comm, status, err);
    for (size_t i = 0; i < s->n_found && !status; i++)
        if (s->found[i].header && survey_has(s, s->found[i].header))
            enter(s->found[i].header, fields);
    if (!status) status = comm_allreduce(comm, fields, world * FIELDS, DCP_REDUCE_MAX, err);
    for (size_t f = 0; f < world && !status; f++) {
        const uint64_t *at = fields + f * FIELDS;
        s->shards[f] = (survey_shard){(int)at[LEADER] - 1, (int)at[MEMBER], (int)at[MEMBERS],
                                      at[BYTES], at[CRC]};
    }
    if (!status) keep_whole_groups(s);
    free(fields);
    return status;
}

void survey_group(const redundancy_survey *s, int leader, code_group *out, int *numbers) {
    *out = (code_group){s->kind, s->shards[leader].members, s->lost};
    for (int f = 0; f < s->world; f++)
        if (s->shards[f].leader == leader) numbers[s->shards[f].member] = f;
}

void survey_header(const redundancy_survey *s, int leader, int member, parity_header *out) {
    int numbers[REDUNDANCY_MAX_MEMBERS];
    *out = (parity_header){.member = member, .world = s->world, .step = s->step, .set = s->set};
    survey_group(s, leader, &out->group, numbers);
    for (int m = 0; m < out->group.members; m++) {
        const survey_shard *shard = &s->shards[numbers[m]];
        out->members[m] = (parity_member){(uint64_t)numbers[m], shard->bytes, shard->crc};
    }
}

int survey_file_of(const redundancy_survey *s, const int *numbers, const code_strip *at) {
    return numbers[at->member] + (at->redundant ? s->world : 0);
}

static size_t file_of(const redundancy_survey *s, const survey_found *f) {
    return (size_t)f->number + (f->kind == REDUNDANCY_NONE ? 0 : (size_t)s->world);
}

/* Whether a redundancy file says of its group what all of them say. */
static int agrees(const redundancy_survey *s, const parity_header *h) {
    int leader = s->shards[h->members[0].number].leader;
    parity_header common;
    if (leader < 0 || leader != (int)h->members[0].number) return 0;
    survey_header(s, leader, h->member, &common);
    return common.group.members == h->group.members &&
           !memcmp(common.members, h->members, sizeof common.members);
}

/* What name, size and header tell. Files of another world size are another save's: not looked at.
 */
static void check_quickly(const redundancy_survey *s, survey_found *f) {
    struct stat st;
    if (f->world != s->world) f->usable = 0;
    if (!f->usable) return;
    if (f->kind != REDUNDANCY_NONE) {
        f->usable = survey_has(s, f->header) && agrees(s, f->header);
        return;
    }
    const survey_shard *shard = &s->shards[f->number];
    f->usable = !stat(f->path, &st) && S_ISREG(st.st_mode) &&
                (shard->leader < 0 || (uint64_t)st.st_size == shard->bytes);
}

static int check_shard(const survey_shard *shard, const char *path, int *intact, dcp_error *err) {
    unsigned char *buffer = malloc(BLOCK_BYTES);
    if (!buffer) return core_fail_memory(err, BLOCK_BYTES);
    int fd = -1;
    uint64_t raw = 0, at = 0, bytes;
    int failed = io_open_regular(path, O_RDONLY, &fd, &bytes, NULL) || bytes != shard->bytes;
    for (uint64_t part; at < shard->bytes && !failed; at += part) {
        part = shard->bytes - at < BLOCK_BYTES ? shard->bytes - at : BLOCK_BYTES;
        failed = io_read_plain(fd, buffer, part, at, path, NULL);
        if (!failed) raw = core_crc64_raw(raw, buffer, part);
    }
    *intact = !failed && core_crc64_finish(raw, shard->bytes) == shard->crc;
    if (fd >= 0) close(fd);
    free(buffer);
    return DCP_OK;
}

static void withdraw(void *usable, const char *line) {
    (void)line;
    *(int *)usable = 0;
}

/* Reads the file whole. What can't be read is lost. */
static int check_bytes(const redundancy_survey *s, survey_found *f, dcp_error *err) {
    parity_header header;
    redundancy_reader reader = {&f->usable, withdraw, NULL};
    int fd, status;
    f->checked = 1;
    if (f->kind == REDUNDANCY_NONE) {
        if (s->shards[f->number].leader < 0) return DCP_OK;
        return check_shard(&s->shards[f->number], f->path, &f->usable, err);
    }
    status = parity_open(f->path, strrchr(f->path, '/') + 1, &header, &fd, NULL);
    if (!status) {
        status = parity_check_payload(&header, fd, f->path, &reader, NULL);
        close(fd);
    }
    if (status == DCP_ERR_NO_MEMORY) return core_fail_memory(err, BLOCK_BYTES);
    if (status) f->usable = 0;
    return DCP_OK;
}

/* The rank's distance from the one whose turn it is to take the file: lets ranks share the work. */
static uint64_t distance(const dcp_comm *comm, size_t file, int rank) {
    uint64_t size = (uint64_t)comm->size;
    return ((uint64_t)rank + size - file % size) % size;
}

/* An intact copy of every file, by what is known now. */
static int choose(dcp_comm *comm, redundancy_survey *s, uint64_t *keys, dcp_error *err) {
    size_t n = 2 * (size_t)s->world;
    for (size_t f = 0; f < n; f++) keys[f] = UINT64_MAX;
    for (size_t i = 0; i < s->n_found; i++)
        if (s->found[i].usable) {
            size_t f = file_of(s, &s->found[i]);
            keys[f] = distance(comm, f, comm->rank);
        }
    int status = comm_allreduce(comm, keys, n, DCP_REDUCE_MIN, err);
    if (status) return status;
    for (size_t f = 0; f < n; f++) {
        uint64_t size = (uint64_t)comm->size;
        s->files[f].path = NULL;
        s->files[f].rank = keys[f] == UINT64_MAX ? -1 : (int)((keys[f] + f % size) % size);
    }
    for (size_t i = 0; i < s->n_found; i++) {
        survey_place *file = &s->files[s->found[i].usable ? file_of(s, &s->found[i]) : 0];
        if (s->found[i].usable && file->rank == comm->rank) file->path = s->found[i].path;
    }
    return DCP_OK;
}

/* This rank reads the copies of its own that are chosen; *withdrawn says that one is damaged. */
static int check_chosen(redundancy_survey *s, uint64_t *withdrawn, dcp_error *err) {
    for (size_t i = 0; i < s->n_found; i++) {
        survey_found *f = &s->found[i];
        if (!f->usable || f->checked || s->files[file_of(s, f)].path != f->path) continue;
        int status = check_bytes(s, f, err);
        if (status) return status;
        if (!f->usable) *withdrawn = 1;
    }
    return DCP_OK;
}

/* Who has a damaged copy. */
static int find_damaged(dcp_comm *comm, redundancy_survey *s, uint64_t *keys, dcp_error *err) {
    size_t n = 2 * (size_t)s->world;
    for (size_t f = 0; f < n; f++) keys[f] = UINT64_MAX;
    for (size_t i = 0; i < s->n_found; i++)
        if (!s->found[i].usable && s->found[i].world == s->world)
            keys[file_of(s, &s->found[i])] = (uint64_t)comm->rank;
    int status = comm_allreduce(comm, keys, n, DCP_REDUCE_MIN, err);
    for (size_t f = 0; f < n && !status; f++)
        s->files[f].damaged = keys[f] == UINT64_MAX ? -1 : (int)keys[f];
    return status;
}

static int place_files(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    uint64_t *keys = malloc(2 * (size_t)s->world * sizeof *keys), withdrawn;
    int status = keys ? DCP_OK : core_fail_memory(err, 2 * (uint64_t)s->world * sizeof *keys);
    status = comm_agree(comm, status, err);
    for (size_t i = 0; i < s->n_found && !status; i++) check_quickly(s, &s->found[i]);
    do {
        withdrawn = 0;
        if (!status) status = choose(comm, s, keys, err);
        if (status || !s->every_byte) break;
        status = comm_agree(comm, check_chosen(s, &withdrawn, err), err);
        if (!status) status = comm_allreduce(comm, &withdrawn, 1, DCP_REDUCE_MAX, err);
    } while (!status && withdrawn);
    if (!status) status = find_damaged(comm, s, keys, err);
    free(keys);
    return status;
}

static int begin(dcp_comm *comm, redundancy_survey *s, const char *const *folders, size_t n,
                 uint64_t node, dcp_error *err) {
    size_t size = (size_t)comm->size;
    s->nodes = malloc(size * sizeof *s->nodes);
    int status = s->nodes ? survey_find(s, folders, n, err) : core_fail_memory(err, size * 8);
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = comm_gather(comm, &node, sizeof node, comm->rank ? NULL : s->nodes, 0, err);
    return status ? status : comm_broadcast(comm, s->nodes, size * sizeof *s->nodes, 0, err);
}

int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t node,
                           int every_byte, redundancy_survey **out, dcp_error *err) {
    redundancy_survey *s = calloc(1, sizeof *s);
    int status = comm_agree(comm, s ? DCP_OK : core_fail_memory(err, sizeof *s), err);
    if (!status) {
        s->every_byte = every_byte;
        status = begin(comm, s, folders, n, node, err);
    }
    if (!status) status = survey_elect(comm, s, err);
    if (!status) status = learn_shards(comm, s, err);
    if (!status) status = place_files(comm, s, err);
    if (status)
        redundancy_survey_close(s);
    else
        *out = s;
    return status;
}

void redundancy_survey_close(redundancy_survey *s) {
    if (!s) return;
    for (size_t f = 0; s->files && f < 2 * (size_t)s->world; f++)
        if (s->files[f].is_rebuilt) free(s->files[f].path);
    survey_found_free(s);
    free(s->nodes);
    free(s->shards);
    free(s->files);
    free(s);
}
