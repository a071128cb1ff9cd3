/* Finds out where the files of a step are, and whether they suffice.
 *
 * First each rank lists the files in the folders that it sees. A file that cannot be read is not
 * used, and neither is one with wrong bytes. If the other files do not suffice, an unread file is
 * reported as an error, not as damage. Folders can hold redundancy files of several saves, so the
 * ranks then elect the save with the most votes. Then one intact copy of each file is chosen. A
 * rank that finds its chosen copy damaged withdraws it, and the choice is repeated until no copy is
 * withdrawn. */
#include "redundancy/survey.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/folder.h"
#include "format/index.h"
#include "io/entries.h"
#include "io/file.h"

/* Skips a file that could not be read, because the other files may suffice. If they do not,
 * s->unread is reported, and the file does not count as lost. A lack of memory or a cancellation is
 * returned immediately. */
static int pass_over(redundancy_survey *s, survey_found *f, int status, const dcp_error *why,
                     dcp_error *err) {
    f->usable = false;
    f->is_unread = core_fail_is_unread(status);
    if (status == DCP_ERR_NO_MEMORY || status == DCP_ERR_CANCELLED)
        return core_fail_again(err, status, why, "%s", why->message);
    if (f->is_unread && !s->unread.status) s->unread = *why;
    return DCP_OK;
}

/* Reads the header of a redundancy file. The file is usable if its header is valid. */
static int read_found_header(redundancy_survey *s, survey_found *f, const char *folder,
                             const char *name, dcp_error *err) {
    parity_header header;
    dcp_error why;
    uint64_t step;
    int fd, status = redundancy_parity_open(f->path, name, &header, &fd, &why);
    if (status) return pass_over(s, f, status, &why, err);
    close(fd);
    if (format_name_read(folder, &step) && step != header.step) return DCP_OK;
    f->header = malloc(sizeof header);
    if (!f->header) return core_fail_memory(err, sizeof header);
    *f->header = header;
    f->usable = true;
    return DCP_OK;
}

static int add_found_file(redundancy_survey *s, const char *folder, const char *name,
                          dcp_error *err) {
    survey_found f = {0};
    if (!redundancy_parity_name_read(name, &f.kind, &f.number, &f.world)) return DCP_OK;
    survey_found *longer = core_array_grow(s->found, s->n_found + 1, sizeof *longer);
    if (!longer) return core_fail_memory(err, (s->n_found + 1) * sizeof *longer);
    s->found = longer;
    if (asprintf(&f.path, "%s/%s", folder, name) < 0) return core_fail_memory(err, 4096);
    f.usable = f.kind == REDUNDANCY_NONE;
    int status = f.usable ? DCP_OK : read_found_header(s, &f, folder, name, err);
    s->found[s->n_found++] = f;
    return status;
}

/* A folder that is being listed. */
typedef struct survey_look {
    redundancy_survey *survey;
    const char *folder;
} survey_look;

static int take_folder_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const survey_look *look = ctx;
    (void)of;
    return add_found_file(look->survey, look->folder, e->d_name, err);
}

/* Fills s->found with the shards and redundancy files in the folders. */
static int find_files(redundancy_survey *s, const char *const *folders, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        survey_look look = {s, folders[i]};
        survey_found none = {0};
        dcp_error why;
        status = io_visit_entries(AT_FDCWD, folders[i], folders[i], take_folder_entry, &look, &why);
        if (status) status = pass_over(s, &none, status, &why, err);
    }
    return status;
}

static void free_found_files(redundancy_survey *s) {
    for (size_t i = 0; i < s->n_found; i++) {
        free(s->found[i].path);
        free(s->found[i].header);
    }
    free(s->found);
}

/* The properties that the redundancy files of one save share, and the number of such files. */
typedef struct save_votes {
    uint64_t step, set;
    int world, kind, lost, votes;
} save_votes;

static save_votes vote_of(const parity_header *h) {
    return (save_votes){h->step, h->set, h->world, (int)h->group.kind, h->group.lost, 1};
}

static bool is_same_save(const save_votes *a, const save_votes *b) {
    return a->step == b->step && a->set == b->set && a->world == b->world && a->kind == b->kind &&
           a->lost == b->lost;
}

/* Returns true if the redundancy file with header `h` belongs to the survey's step and save. */
static bool is_of_save(const redundancy_survey *s, const parity_header *h) {
    save_votes wanted = {s->step, s->set, s->world, (int)s->kind, s->lost, 0}, has = vote_of(h);
    return is_same_save(&wanted, &has);
}

/* Adds up the votes for each save in `list`, and returns the save with the most votes. Among saves
 * with equally many votes, returns the latest. */
static save_votes most_votes(const save_votes *list, size_t n) {
    save_votes best = {0};
    for (size_t i = 0; i < n; i++) {
        save_votes sum = list[i];
        if (best.votes && is_same_save(&sum, &best)) continue;
        sum.votes = 0;
        for (size_t j = 0; j < n; j++)
            if (is_same_save(&list[j], &sum)) sum.votes += list[j].votes;
        bool later = sum.step > best.step || (sum.step == best.step && sum.set > best.set);
        if (sum.votes > best.votes || (sum.votes && sum.votes == best.votes && later)) best = sum;
    }
    return best;
}

static int own_vote(const redundancy_survey *s, save_votes *out, dcp_error *err) {
    size_t n = 0;
    save_votes *list = core_array(s->n_found + 1, sizeof *list);
    if (!list) return core_fail_memory(err, (s->n_found + 1) * sizeof *list);
    for (size_t i = 0; i < s->n_found; i++)
        if (s->found[i].usable && s->found[i].header) list[n++] = vote_of(s->found[i].header);
    *out = most_votes(list, n);
    free(list);
    return DCP_OK;
}

/* Fills in step, set, world, kind and lost from the save that gets the most votes from all ranks'
 * files. Collective. Returns DCP_ERR_NOT_FOUND if no rank has found a usable redundancy file. */
static int elect_save(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    size_t size = (size_t)comm->size;
    save_votes own = {0}, *all = core_array(size, sizeof *all);
    int status = all ? own_vote(s, &own, err) : core_fail_memory(err, size * sizeof *all);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_gather(comm, &own, sizeof own, comm->rank ? NULL : all, 0, err);
    if (!status && comm->rank == 0) own = most_votes(all, size);
    if (!status) status = comm_broadcast(comm, &own, sizeof own, 0, err);
    free(all);
    if (status) return status;
    if (!own.votes)
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "redundancy: no rank sees an intact redundancy file of this step");
    s->step = own.step;
    s->set = own.set;
    s->world = own.world;
    s->kind = (redundancy_kind)own.kind;
    s->lost = own.lost;
    return DCP_OK;
}

enum { LEADER, MEMBER, MEMBERS, BYTES, CRC, FIELDS };

static void enter_shards(const parity_header *h, uint64_t *fields) {
    for (int m = 0; m < h->group.members; m++) {
        uint64_t *at = fields + h->members[m].number * FIELDS;
        at[LEADER] = h->members[0].number + 1;
        at[MEMBER] = (uint64_t)m;
        at[MEMBERS] = (uint64_t)h->group.members;
        at[BYTES] = h->members[m].bytes;
        at[CRC] = h->members[m].crc;
    }
}

/* Returns true if all members of the leader's group name this leader, and have different
 * numbers. */
static bool is_whole_group(const redundancy_survey *s, int leader) {
    char seen[REDUNDANCY_MAX_MEMBERS] = {0};
    int n = 0, members = s->shards[leader].members;
    for (int f = 0; f < s->world; f++) {
        const survey_shard *shard = &s->shards[f];
        if (shard->leader != leader) continue;
        if (shard->members != members || shard->member >= members || seen[shard->member]++)
            return false;
        n++;
    }
    return n == members && s->shards[leader].member == 0 && members > s->lost;
}

/* Marks a group as unknown if its files contradict each other, as forged files might. */
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

/* Collects what the redundancy files on all ranks contain about the shards. */
static int learn_shards(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    size_t world = (size_t)s->world;
    uint64_t *fields = calloc(world * FIELDS, sizeof *fields);
    s->shards = calloc(world, sizeof *s->shards);
    s->files = calloc(2 * world, sizeof *s->files);
    int status = DCP_OK;
    if (!fields || !s->shards || !s->files) status = core_fail_memory(err, world * FIELDS * 8);
    status = comm_agree(comm, status, err);
    for (size_t i = 0; i < s->n_found && !status; i++)
        if (s->found[i].header && is_of_save(s, s->found[i].header))
            enter_shards(s->found[i].header, fields);
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

void redundancy_survey_group(const redundancy_survey *s, int leader, code_group *out,
                             int *numbers) {
    *out = (code_group){s->kind, s->shards[leader].members, s->lost};
    for (int f = 0; f < s->world; f++)
        if (s->shards[f].leader == leader) numbers[s->shards[f].member] = f;
}

void redundancy_survey_header(const redundancy_survey *s, int leader, int member,
                              parity_header *out) {
    int numbers[REDUNDANCY_MAX_MEMBERS];
    *out = (parity_header){.member = member, .world = s->world, .step = s->step, .set = s->set};
    redundancy_survey_group(s, leader, &out->group, numbers);
    for (int m = 0; m < out->group.members; m++) {
        const survey_shard *shard = &s->shards[numbers[m]];
        out->members[m] = (parity_member){(uint64_t)numbers[m], shard->bytes, shard->crc};
    }
}

/* Returns the number of the file that contains a strip of a group. */
static int file_of_strip(const redundancy_survey *s, const int *numbers, const code_strip *at) {
    return numbers[at->member] + (at->redundant ? s->world : 0);
}

static size_t file_of(const redundancy_survey *s, const survey_found *f) {
    return (size_t)f->number + (f->kind == REDUNDANCY_NONE ? 0 : (size_t)s->world);
}

/* Returns true if the redundancy file describes its group in the same way as the group's other
 * files. */
static bool agrees(const redundancy_survey *s, const parity_header *h) {
    int leader = s->shards[h->members[0].number].leader;
    parity_header common;
    if (leader < 0 || leader != (int)h->members[0].number) return false;
    redundancy_survey_header(s, leader, h->member, &common);
    return common.group.members == h->group.members &&
           !memcmp(common.members, h->members, sizeof common.members);
}

/* Checks the file's name, size and header. Files for a different number of shards belong to another
 * save and are not examined. */
static int check_quickly(redundancy_survey *s, survey_found *f, dcp_error *err) {
    struct stat st;
    dcp_error why;
    if (f->world != s->world) f->usable = false;
    if (!f->usable) return DCP_OK;
    if (f->kind != REDUNDANCY_NONE) {
        f->usable = is_of_save(s, f->header) && agrees(s, f->header);
        return DCP_OK;
    }
    const survey_shard *shard = &s->shards[f->number];
    const int status = io_stat(AT_FDCWD, f->path, &st, &why);
    if (status) return pass_over(s, f, status, &why, err);
    f->usable = S_ISREG(st.st_mode) && (shard->leader < 0 || (uint64_t)st.st_size == shard->bytes);
    return DCP_OK;
}

/* Returns DCP_ERR_CORRUPT if the shard does not have the checksum that the redundancy files
 * contain. */
static int check_shard(const survey_shard *shard, const char *path, comm_stop *stop,
                       dcp_error *err) {
    unsigned char *buffer = malloc(BLOCK_BYTES);
    if (!buffer) return core_fail_memory(err, BLOCK_BYTES);
    int fd = -1;
    uint64_t raw = 0, at = 0, bytes = 0;
    int status = io_open_regular(path, O_RDONLY, &fd, &bytes, err);
    for (uint64_t part; at < shard->bytes && bytes == shard->bytes && !status; at += part) {
        part = shard->bytes - at < BLOCK_BYTES ? shard->bytes - at : BLOCK_BYTES;
        status = comm_stop_poll(stop, err);
        if (!status) status = io_read_plain(fd, buffer, part, at, path, err);
        if (!status) raw = core_crc64_raw(raw, buffer, part);
    }
    if (!status && (bytes != shard->bytes || core_crc64_finish(raw, shard->bytes) != shard->crc))
        status = core_fail_at(err, DCP_ERR_CORRUPT, path, "not the bytes that were saved");
    if (fd >= 0) close(fd);
    free(buffer);
    return status;
}

/* A file that is being checked. */
typedef struct checking {
    survey_found *file;
    comm_stop *stop;
} checking;

static void withdraw(void *ctx, const char *line) {
    (void)line;
    ((checking *)ctx)->file->usable = false;
}

static int check_stop(void *ctx, uint64_t bytes, dcp_error *err) {
    (void)bytes;
    return comm_stop_poll(((checking *)ctx)->stop, err);
}

/* Reads and checks every byte of the file. */
static int check_bytes(redundancy_survey *s, survey_found *f, dcp_error *err) {
    parity_header header;
    checking ctx = {f, &s->stop};
    const redundancy_reader reader = {&ctx, withdraw, check_stop};
    dcp_error why;
    int fd, status;
    f->checked = true;
    if (f->kind == REDUNDANCY_NONE) {
        if (s->shards[f->number].leader < 0) return DCP_OK;
        status = check_shard(&s->shards[f->number], f->path, &s->stop, &why);
        return status ? pass_over(s, f, status, &why, err) : DCP_OK;
    }
    status = redundancy_parity_open(f->path, strrchr(f->path, '/') + 1, &header, &fd, &why);
    if (!status) {
        status = redundancy_parity_check_payload(&header, fd, f->path, &reader, &why);
        close(fd);
    }
    return status ? pass_over(s, f, status, &why, err) : DCP_OK;
}

/* Returns the rank's distance from rank `file` modulo the number of ranks. To distribute the work,
 * each file is read by the rank with the smallest distance among the ranks that have it. */
static uint64_t distance_of_turn(const dcp_comm *comm, size_t file, int rank) {
    uint64_t size = (uint64_t)comm->size;
    return ((uint64_t)rank + size - file % size) % size;
}

/* Returns the rank with that distance; -1 if the distance is UINT64_MAX. */
static int rank_of_turn(const dcp_comm *comm, size_t file, uint64_t distance) {
    uint64_t size = (uint64_t)comm->size;
    return distance == UINT64_MAX ? -1 : (int)((distance + file % size) % size);
}

/* Chooses a copy of every file among the copies that are not known to be damaged. */
static int choose_copies(dcp_comm *comm, redundancy_survey *s, uint64_t *keys, dcp_error *err) {
    size_t n = 2 * (size_t)s->world;
    for (size_t f = 0; f < n; f++) keys[f] = UINT64_MAX;
    for (size_t i = 0; i < s->n_found; i++)
        if (s->found[i].usable) {
            size_t f = file_of(s, &s->found[i]);
            keys[f] = distance_of_turn(comm, f, comm->rank);
        }
    int status = comm_allreduce(comm, keys, n, DCP_REDUCE_MIN, err);
    if (status) return status;
    for (size_t f = 0; f < n; f++) {
        s->files[f].path = NULL;
        s->files[f].rank = rank_of_turn(comm, f, keys[f]);
    }
    for (size_t i = 0; i < s->n_found; i++) {
        survey_place *file = &s->files[s->found[i].usable ? file_of(s, &s->found[i]) : 0];
        if (s->found[i].usable && file->rank == comm->rank) file->path = s->found[i].path;
    }
    return DCP_OK;
}

/* Reads the chosen copies that are on this rank; sets *withdrawn if one of them is damaged. */
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

/* Finds the damaged copies. If a file has several, chooses the one with the smallest distance,
 * which a load on these ranks would read. A copy that could not be read counts only if no other is
 * damaged; its key is the larger by the number of ranks. A redundancy file of another kind belongs
 * to another save. */
static int find_damaged(dcp_comm *comm, redundancy_survey *s, uint64_t *keys, dcp_error *err) {
    const size_t n = 2 * (size_t)s->world;
    const uint64_t size = (uint64_t)comm->size;
    for (size_t f = 0; f < n; f++) keys[f] = UINT64_MAX;
    for (size_t i = 0; i < s->n_found; i++) {
        const survey_found *found = &s->found[i];
        const bool is_kind = found->kind == REDUNDANCY_NONE || found->kind == s->kind;
        if (found->usable || found->world != s->world || !is_kind) continue;
        const size_t f = file_of(s, found);
        const uint64_t key = distance_of_turn(comm, f, comm->rank) + (found->is_unread ? size : 0);
        if (key < keys[f]) keys[f] = key;
    }
    int status = comm_allreduce(comm, keys, n, DCP_REDUCE_MIN, err);
    for (size_t f = 0; f < n && !status; f++) {
        s->files[f].damaged = rank_of_turn(comm, f, keys[f]);
        s->files[f].is_proven = keys[f] < size;
    }
    return status;
}

static int place_files(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    uint64_t *keys = core_array(2 * (size_t)s->world, sizeof *keys), withdrawn;
    int status = keys ? DCP_OK : core_fail_memory(err, 2 * (uint64_t)s->world * sizeof *keys);
    status = comm_agree(comm, status, err);
    int quick = status;
    for (size_t i = 0; i < s->n_found && !quick; i++) quick = check_quickly(s, &s->found[i], err);
    if (!status) status = comm_agree(comm, quick, err);
    do {
        withdrawn = 0;
        if (!status) status = choose_copies(comm, s, keys, err);
        if (status || !s->every_byte) break;
        status = comm_agree(comm, check_chosen(s, &withdrawn, err), err);
        if (!status) status = comm_allreduce(comm, &withdrawn, 1, DCP_REDUCE_MAX, err);
    } while (!status && withdrawn);
    if (!status) status = find_damaged(comm, s, keys, err);
    free(keys);
    return status;
}

static int begin_survey(dcp_comm *comm, redundancy_survey *s, const char *const *folders, size_t n,
                        uint64_t domain, dcp_error *err) {
    size_t size = (size_t)comm->size;
    s->domains = core_array(size, sizeof *s->domains);
    int status = s->domains ? find_files(s, folders, n, err) : core_fail_memory(err, size * 8);
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = comm_gather(comm, &domain, sizeof domain, comm->rank ? NULL : s->domains, 0, err);
    return status ? status : comm_broadcast(comm, s->domains, size * sizeof *s->domains, 0, err);
}

/* If the survey has failed, and any rank could not read a file, makes all ranks fail with that
 * rank's error: the file may be the one that is missing. Collective. */
static int agree_on_unread(dcp_comm *comm, redundancy_survey *s, int status, dcp_error *err) {
    const int unread = comm_agree(comm, s->unread.status, &s->unread);
    if (!unread || (!status && unread != DCP_ERR_COMM)) return status;
    if (err) *err = s->unread;
    return unread;
}

int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t domain,
                           int every_byte, redundancy_survey **out, dcp_error *err) {
    redundancy_survey *s = calloc(1, sizeof *s);
    int status = comm_agree(comm, s ? DCP_OK : core_fail_memory(err, sizeof *s), err);
    if (!status) {
        s->every_byte = every_byte;
        s->stop = comm_stop_of(comm, "the rebuild", "intact files remain");
        status = begin_survey(comm, s, folders, n, domain, err);
    }
    if (!status) status = elect_save(comm, s, err);
    if (!status) status = learn_shards(comm, s, err);
    if (!status) status = place_files(comm, s, err);
    if (!status || core_fail_is_damage(status)) status = agree_on_unread(comm, s, status, err);
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
    free_found_files(s);
    free(s->domains);
    free(s->shards);
    free(s->files);
    free(s);
}

static bool is_lost(const redundancy_survey *s, int file) { return s->files[file].rank < 0; }

/* Appends a number to the list in `text`, or "..." if there is no space. */
static void append_number(char *text, size_t size, int number) {
    size_t length = strlen(text);
    if (length + 16 < size)
        snprintf(text + length, size - length, "%s%d", length ? ", " : "", number);
    else if (length + 4 < size && text[length - 1] != '.')
        strcat(text, "...");
}

static bool can_rebuild(const redundancy_survey *s, const code_group *g, const int *numbers) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    for (int i = 0; i < g->members; i++) {
        int left = 0;
        redundancy_code_stripe(g, i, rows);
        for (int row = 0; row < redundancy_code_strips(g); row++)
            left += !is_lost(s, file_of_strip(s, numbers, &rows[row]));
        if (left < redundancy_code_data_strips(g)) return false;
    }
    return true;
}

static int fail_group(const redundancy_survey *s, const code_group *g, const int *numbers,
                      dcp_error *err) {
    char all[256] = "", lost[256] = "", files[256] = "", rule[64] = "partner";
    bool damaged = false;
    for (int m = 0; m < g->members; m++) {
        int shard = numbers[m], redundant = numbers[m] + s->world;
        append_number(all, sizeof all, shard);
        if (is_lost(s, shard)) append_number(lost, sizeof lost, shard);
        if (is_lost(s, redundant)) append_number(files, sizeof files, shard);
        damaged |= is_lost(s, shard) && s->files[shard].damaged >= 0;
        damaged |= is_lost(s, redundant) && s->files[redundant].damaged >= 0;
    }
    if (g->kind == REDUNDANCY_RS)
        snprintf(rule, sizeof rule, "rs(%d) survives only the loss of %d", g->lost, g->lost);
    else
        snprintf(rule, sizeof rule, "partner survives no loss of neighbours");
    return core_fail(err, damaged ? DCP_ERR_CORRUPT : DCP_ERR_NOT_FOUND,
                     "step %llu can't be rebuilt: in the group of shards %s, shards %s and the "
                     "redundancy files of shards %s are %s, but %s: load an older step",
                     (unsigned long long)s->step, all, *lost ? lost : "(none)",
                     *files ? files : "(none)", damaged ? "damaged or missing" : "missing", rule);
}

/* Fails for a shard that can't be rebuilt because its group is unknown. */
static int fail_unknown(const redundancy_survey *s, int shard, dcp_error *err) {
    bool damaged = s->files[shard].damaged >= 0;
    return core_fail(err, damaged ? DCP_ERR_CORRUPT : DCP_ERR_NOT_FOUND,
                     "step %llu can't be rebuilt: shard %d of %d is %s, and no redundancy file of "
                     "its group is left: load an older step",
                     (unsigned long long)s->step, shard, s->world, damaged ? "damaged" : "missing");
}

static int check_losses(const redundancy_survey *s, dcp_error *err) {
    code_group g;
    int numbers[REDUNDANCY_MAX_MEMBERS];
    for (int f = 0; f < s->world; f++) {
        if (s->shards[f].leader < 0 && is_lost(s, f)) return fail_unknown(s, f, err);
        if (s->shards[f].leader != f) continue;
        redundancy_survey_group(s, f, &g, numbers);
        if (!can_rebuild(s, &g, numbers)) return fail_group(s, &g, numbers, err);
    }
    return DCP_OK;
}

int redundancy_survey_check(const redundancy_survey *s, dcp_error *err) {
    const int status = check_losses(s, err);
    if (!status || !s->unread.status) return status;
    if (err) *err = s->unread;
    return s->unread.status;
}

bool redundancy_survey_mends(const redundancy_survey *s, int file) {
    const survey_place *place = &s->files[file];
    return place->rank >= 0 && place->is_proven && s->shards[file % s->world].leader >= 0;
}

void redundancy_survey_lost(const redundancy_survey *s, int *shards, int *redundancy_files) {
    int n[2] = {0, 0};
    for (int f = 0; f < 2 * s->world; f++)
        n[f >= s->world] += is_lost(s, f) || redundancy_survey_mends(s, f);
    if (shards) *shards = n[0];
    if (redundancy_files) *redundancy_files = n[1];
}
