#include "launcher/hosts/cluster.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/program.h"

static int at_most(int value, int limit) { return value < limit ? value : limit; }
static int at_least(int value, int limit) { return value > limit ? value : limit; }

static int lowest_ranks(const launcher_cluster *c) { return at_least(c->options.min, 1); }
static bool is_shrinking(const launcher_cluster *c) {
    return c->options.on_failure == LAUNCHER_ON_FAILURE_SHRINK;
}

static int count_slots(const launcher_cluster *c) {
    int slots = 0;
    for (size_t i = 0; i < c->n; i++) slots += c->at[i].slots;
    return slots;
}

static int usable_at(const launcher_cluster *c, const cluster_host *h, slot_level level) {
    if (level < h->level) return 0;
    const int dead = is_shrinking(c) && level < LEVEL_DEAD ? h->dead : 0;
    return at_least(h->slots - dead, 0);
}

static int count_usable(const launcher_cluster *c, slot_level level) {
    int slots = 0;
    for (size_t i = 0; i < c->n; i++) slots += usable_at(c, &c->at[i], level);
    return slots;
}

/* Adds ranks one by one, each to the first of the hosts with the fewest ranks. Returns how many did
 * not fit. */
static int add_evenly(launcher_cluster *c, slot_level level, int left) {
    for (; left > 0; left--) {
        cluster_host *least = NULL;
        for (size_t i = 0; i < c->n; i++) {
            cluster_host *h = &c->at[i];
            if (h->planned >= usable_at(c, h, level)) continue;
            if (!least || h->planned < least->planned) least = h;
        }
        if (!least) break;
        least->planned++;
    }
    return left;
}

static int spread_ranks(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) c->at[i].planned = 0;
    return add_evenly(c, level, left);
}

/* Each host retains its ranks. If there are too many, the hosts with the most ranks lose some;
 * further ranks go to the hosts with the fewest. */
static int keep_evenly(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].planned = at_most(c->at[i].used, usable_at(c, &c->at[i], level));
        left -= c->at[i].planned;
    }
    for (; left < 0; left++) {
        cluster_host *most = &c->at[0];
        for (size_t i = 1; i < c->n; i++)
            if (c->at[i].planned > most->planned) most = &c->at[i];
        most->planned--;
    }
    return add_evenly(c, level, left);
}

/* Each host retains its ranks, so a change to some hosts does not needlessly move the ranks of
 * other hosts. Further ranks go to hosts with free slots, in the order of the list. */
static int keep_ranks(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) {
        cluster_host *h = &c->at[i];
        h->planned = at_most(at_most(h->used, usable_at(c, h, level)), left);
        left -= h->planned;
    }
    for (size_t i = 0; i < c->n; i++) {
        cluster_host *h = &c->at[i];
        const int more = at_most(usable_at(c, h, level) - h->planned, left);
        h->planned += more;
        left -= more;
    }
    return left;
}

/* Fills in `planned`. Returns the number of ranks. */
static int plan_ranks(launcher_cluster *c) {
    const int goal = at_most(c->goal, count_slots(c));
    const int need = is_shrinking(c) ? at_most(lowest_ranks(c), goal) : goal;
    const int most = at_least(is_shrinking(c) ? at_most(goal, c->most) : goal, need);
    const int want = at_most(most, c->refused_from - 1);
    slot_level level = LEVEL_SOUND;
    while (level < LEVEL_NO_ANSWER && count_usable(c, level) < need) level++;
    int (*const distribute)(launcher_cluster *, slot_level, int) = c->distributes_evenly
                                                                       ? spread_ranks
                                                                   : c->options.evenly ? keep_evenly
                                                                                       : keep_ranks;
    return want - distribute(c, level, want);
}

/* Returns true if the plan differs from the last start. */
static bool plan_differs(const launcher_cluster *c) {
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].planned != c->at[i].used) return true;
    return false;
}

int launcher_cluster_dropped(launcher_cluster *c) {
    int n = 0;
    plan_ranks(c);
    for (size_t i = 0; i < c->n; i++) n += c->at[i].used > 0 && c->at[i].planned == 0;
    return n;
}

enum { FAILURES_TO_LEAVE_OUT = 2 };
enum { MAX_WAIT_S = 30 };

void launcher_placement_free(launcher_placement *placement) {
    for (size_t i = 0; i < placement->n; i++) free(placement->at[i].name);
    free(placement->at);
    *placement = (launcher_placement){0};
}

static const char *source_of(const launcher_cluster *c) {
    return c->options.hosts_file ? c->options.hosts_file : "the Slurm job";
}

static cluster_host *find_host(const launcher_cluster *c, const char *name) {
    if (c->is_unlimited) return &c->at[0];
    if (!name) return NULL;
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->at[i].name, name) == 0) return &c->at[i];
    if (!launcher_hosts_is_local_name(name)) return NULL;
    for (size_t i = 0; i < c->n; i++)
        if (launcher_hosts_is_local_name(c->at[i].name)) return &c->at[i];
    return NULL;
}

/* Reading. */

static int add_cluster_host(launcher_cluster *c, const launcher_host *host) {
    cluster_host *grown = realloc(c->at, (c->n + 1) * sizeof *grown);
    if (!grown) return -1;
    c->at = grown;
    grown[c->n] = (cluster_host){.name = strdup(host->name), .slots = host->slots};
    return grown[c->n].name && ++c->n ? 0 : -1;
}

static void free_hosts(launcher_cluster *c) {
    for (size_t i = 0; i < c->n; i++) free(c->at[i].name);
    free(c->at);
    c->at = NULL;
    c->n = 0;
}

/* Replaces the hosts. A host that is in both lists keeps its number of ranks, but its failures are
 * forgotten. A host that has ranks but is not in the new list remains, without slots, until the
 * next start. Returns 0, or -1 if memory is short. */
static int exchange_hosts(launcher_cluster *c, const launcher_hosts *hosts) {
    launcher_cluster next = *c;
    next.at = NULL;
    next.n = 0;
    int status = 0;
    for (size_t i = 0; i < hosts->n && status == 0; i++) {
        const cluster_host *old = find_host(c, hosts->at[i].name);
        status = add_cluster_host(&next, &hosts->at[i]);
        if (status == 0 && old) next.at[next.n - 1].used = old->used;
    }
    for (size_t i = 0; i < c->n && status == 0; i++) {
        const launcher_host gone = {c->at[i].name, 0};
        if (c->at[i].used == 0 || find_host(&next, gone.name)) continue;
        status = add_cluster_host(&next, &gone);
        if (status == 0) next.at[next.n - 1].used = c->at[i].used;
    }
    if (status != 0) {
        free_hosts(&next);
        return -1;
    }
    free_hosts(c);
    c->at = next.at;
    c->n = next.n;
    return 0;
}

/* Lifts all limits that deaths and rejections have set on the number of ranks and their
 * distribution. */
static void accept_all(launcher_cluster *c) {
    c->most = INT_MAX;
    c->refused_from = INT_MAX;
    c->distributes_evenly = false;
}

/* Uses the hosts of a changed file; hosts and slots that were left out are available again. */
static int use_hosts(launcher_cluster *c, const launcher_hosts *hosts) {
    const int before = count_slots(c), now = launcher_hosts_slots(hosts);
    if (exchange_hosts(c, hosts) != 0) return program_no_memory();
    accept_all(c);
    if (!c->resized && now > before && c->options.max > 0) c->goal = c->options.max;
    return 0;
}

/* Uses the contents of a file, which differ from the contents in use. Returns 0, or a status after
 * a message if they were refused. */
static int use_text(launcher_cluster *c, const char *text) {
    launcher_hosts hosts;
    int status = launcher_hosts_parse(text, source_of(c), &hosts);
    const int slots = launcher_hosts_slots(&hosts);
    if (status == 0 && slots < lowest_ranks(c))
        status = program_refuse("%s has %d slots now, fewer than --min %d", source_of(c), slots,
                                lowest_ranks(c));
    if (status == 0) status = use_hosts(c, &hosts);
    launcher_hosts_free(&hosts);
    return status;
}

static void refuse_text(launcher_cluster *c, char *text) {
    free(c->refused);
    c->refused = text;
    program_note("%s: the run continues with the hosts that it knows", source_of(c));
}

/* Returns the contents of the host file, which the caller frees; NULL if it is not a regular file,
 * or cannot be read now. The latter is reported once, when two checks in a row have failed. */
static char *look_at_file(launcher_cluster *c) {
    struct stat st;
    const char *path = c->options.hosts_file;
    if (!path) return NULL;
    int code = stat(path, &st) == 0 ? 0 : errno;
    if (code == 0 && !S_ISREG(st.st_mode)) return NULL;
    char *text = code == 0 ? launcher_hosts_text(path) : NULL;
    if (text)
        c->unreadable = 0;
    else if (++c->unreadable == 2)
        program_note(
            "cannot read the host file %s: %s: the run continues with the hosts that it knows",
            path, strerror(code ? code : errno));
    return text;
}

static bool is_equal(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

/* Checks the file, and uses changed contents: at once if `at_once`, otherwise when two checks in a
 * row have found them. */
static bool look_for_change(launcher_cluster *c, bool at_once) {
    char *text = look_at_file(c);
    const bool is_again = is_equal(text, c->seen);
    free(c->seen);
    c->seen = NULL;
    if (!text || is_equal(text, c->text) || is_equal(text, c->refused)) {
        free(text);
        return false;
    }
    if (!at_once && !is_again) {
        c->seen = text;
        return false;
    }
    if (use_text(c, text) != 0) {
        refuse_text(c, text);
        return false;
    }
    free(c->text);
    free(c->refused);
    c->refused = NULL;
    c->text = text;
    return true;
}

bool launcher_cluster_refresh(launcher_cluster *c) {
    if (!look_for_change(c, false)) return false;
    plan_ranks(c);
    return plan_differs(c);
}

/* Opening. */

static int use_this_host(launcher_cluster *c) {
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof name - 1);
    const launcher_host host = {name, LAUNCHER_SLOTS_MAX};
    c->is_unlimited = true;
    return add_cluster_host(c, &host) == 0 ? 0 : program_no_memory();
}

static int read_hosts(launcher_cluster *c) {
    launcher_hosts hosts;
    const char *path = c->options.hosts_file;
    int status = 0;
    if (!path && !c->options.in_slurm) return use_this_host(c);
    if (path) {
        c->text = launcher_hosts_text(path);
        if (!c->text) return program_fail_errno("cannot read the host file", path);
        status = launcher_hosts_parse(c->text, path, &hosts);
    } else {
        status = launcher_hosts_of_slurm(&hosts);
    }
    if (status == 0) status = use_hosts(c, &hosts);
    launcher_hosts_free(&hosts);
    return status;
}

static int check_limits_given(const launcher_cluster_options *o) {
    if (o->min > o->ranks)
        return program_refuse(
            "--min %d is above -n %d: --min must be at most the number of ranks of the first start",
            o->min, o->ranks);
    if (o->max && o->max < o->ranks)
        return program_refuse("--max %d is below -n %d: --max must be at least the number of ranks "
                              "of the first start",
                              o->max, o->ranks);
    return 0;
}

static int check_slots(const launcher_cluster *c) {
    const launcher_cluster_options *o = &c->options;
    const int slots = count_slots(c);
    const char *more = o->hosts_file ? "write 'slots=N' after the names; a name alone is one slot"
                                     : "request as many tasks (sbatch --ntasks)";
    if (lowest_ranks(c) > slots)
        return program_refuse("--min %d is above the number of slots of %s, which is %d: %s",
                              lowest_ranks(c), source_of(c), slots, more);
    if (o->ranks > slots && !is_shrinking(c))
        return program_refuse("-n %d is above the number of slots of %s, which is %d: %s, or "
                              "use --on-failure shrink to begin with as many ranks as slots",
                              o->ranks, source_of(c), slots, more);
    if (o->ranks > slots)
        program_note("%s has %d slots, so the run begins with as many ranks, not with %d",
                     source_of(c), slots, o->ranks);
    return 0;
}

int launcher_cluster_open(launcher_cluster **out, const launcher_cluster_options *options) {
    *out = NULL;
    int status = check_limits_given(options);
    if (status != 0) return status;
    launcher_cluster *c = calloc(1, sizeof *c);
    if (!c) return program_no_memory();
    c->options = *options;
    accept_all(c);
    status = read_hosts(c);
    c->goal = options->ranks;
    if (status == 0) status = check_slots(c);
    if (status != 0) {
        launcher_cluster_close(c);
        return status;
    }
    *out = c;
    return 0;
}

void launcher_cluster_close(launcher_cluster *c) {
    if (!c) return;
    free_hosts(c);
    free(c->text);
    free(c->seen);
    free(c->refused);
    free(c);
}

/* Events. */

void launcher_cluster_rank_failed(launcher_cluster *c, const char *host) {
    cluster_host *h = find_host(c, host);
    if (h && h->failed < h->used) h->failed++;
}

void launcher_cluster_host_lost(launcher_cluster *c, const char *host) {
    cluster_host *h = find_host(c, host);
    if (h && h->used > 0 && !c->is_unlimited) h->lost = true;
}

void launcher_cluster_progressed(launcher_cluster *c) {
    c->failures = 0;
    c->reuses_dead_slots = false;
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].in_a_row = 0;
        if (c->at[i].used > 0)
            c->at[i].level = LEVEL_SOUND; /* it has been tried again, and works */
    }
}

double launcher_cluster_backoff_s(launcher_cluster *c) {
    const int n = c->failures++;
    if (n == 0) return 0;
    return n < 7 ? 0.5 * (1 << (n - 1)) : MAX_WAIT_S;
}

static bool others_are_sound(const launcher_cluster *c, const cluster_host *h) {
    for (size_t i = 0; i < c->n; i++)
        if (&c->at[i] != h && usable_at(c, &c->at[i], LEVEL_SOUND) > 0) return true;
    return false;
}

static void settle_host(launcher_cluster *c, cluster_host *h, bool is_to_blame) {
    const char *file = c->options.hosts_file ? c->options.hosts_file : "";
    const char *until_change = *file ? ", until there is a change in " : "";
    if (h->lost || (h->failed && is_to_blame))
        h->in_a_row++;
    else if (h->used > 0)
        h->in_a_row = 0;
    if (h->lost) {
        h->level = LEVEL_NO_ANSWER;
        program_note("host %s does not answer: it is left out if possible%s%s", h->name,
                     until_change, file);
    } else if (h->in_a_row >= FAILURES_TO_LEAVE_OUT && h->level == LEVEL_SOUND &&
               others_are_sound(c, h)) {
        h->level = LEVEL_FAILING;
        program_note(
            "ranks of host %s failed in %d starts in a row: the host is left out if possible%s%s",
            h->name, h->in_a_row, until_change, file);
    }
}

/* Evaluates what was reported about the last start. If all ranks failed, neither slots nor hosts
 * are the cause, unless all ranks were on one host: then that host may be the cause. */
static void settle(launcher_cluster *c) {
    int ranks = 0, failed = 0, hosts = 0;
    for (size_t i = 0; i < c->n; i++) {
        ranks += c->at[i].used;
        hosts += c->at[i].used > 0;
        failed += c->at[i].lost ? 0 : c->at[i].failed;
    }
    const bool all_failed = failed == ranks, takes = is_shrinking(c) && !all_failed;
    if (takes && failed) c->most = at_most(c->most, ranks) - failed;
    for (size_t i = 0; i < c->n; i++) {
        cluster_host *h = &c->at[i];
        settle_host(c, h, !all_failed || hosts == 1);
        if (takes && !h->lost && !c->is_unlimited) h->dead += h->failed;
        h->failed = h->lost = false;
    }
}

static int copy_plan(const launcher_cluster *c, int ranks, launcher_placement *out) {
    *out = (launcher_placement){.ranks = ranks};
    if (c->is_unlimited) return 0;
    out->at = calloc(c->n + 1, sizeof *out->at);
    for (size_t i = 0; i < c->n && out->at; i++) {
        if (c->at[i].planned == 0) continue;
        char *name = strdup(c->at[i].name);
        if (!name) break;
        out->at[out->n++] = (launcher_host){name, c->at[i].planned};
        ranks -= c->at[i].planned;
    }
    if (out->at && ranks == 0) return 0;
    launcher_placement_free(out);
    return program_no_memory();
}

/* Records the plan as the last start. Hosts that are no longer in the file are dropped with their
 * ranks. */
static void start_plan(launcher_cluster *c) {
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        cluster_host h = c->at[i];
        h.used = h.planned;
        if (h.slots == 0 && h.used == 0)
            free(h.name);
        else
            c->at[kept++] = h;
    }
    c->n = kept;
}

int launcher_cluster_place(launcher_cluster *c, launcher_placement *out) {
    *out = (launcher_placement){0};
    if (c->placed) {
        settle(c);
        look_for_change(c, true);
    }
    const int ranks = plan_ranks(c);
    if (ranks < lowest_ranks(c))
        return program_fail(PROGRAM_FAILED, "%s has slots for %d ranks, fewer than --min %d",
                            source_of(c), ranks, lowest_ranks(c));
    const int status = copy_plan(c, ranks, out);
    if (status != 0) return status;
    start_plan(c);
    c->placed = true;
    return 0;
}

int launcher_cluster_resize(launcher_cluster *c, int ranks, char *why, size_t size) {
    const launcher_cluster_options *o = &c->options;
    const int slots = count_usable(c, LEVEL_DEAD);
    int n = 0;
    if (ranks < 1)
        n = snprintf(why, size, "%d is not a number of ranks: give at least 1", ranks);
    else if (o->min > 0 && ranks < o->min)
        n = snprintf(why, size, "%d ranks are fewer than --min %d", ranks, o->min);
    else if (o->max > 0 && ranks > o->max)
        n = snprintf(why, size, "%d ranks are more than --max %d", ranks, o->max);
    else if (ranks > slots)
        n = snprintf(why, size, "%d ranks are more than the %d slots of %s%s", ranks, slots,
                     c->is_unlimited ? "one host" : source_of(c),
                     slots < count_slots(c) ? " without the hosts that are left out" : "");
    if (n != 0) return -1;
    c->goal = ranks;
    c->resized = true;
    accept_all(c);
    for (size_t i = 0; i < c->n; i++) c->at[i].dead = 0;
    return 0;
}

/* Brings the slots whose ranks died back into use, because a start with them is better than none;
 * at most once until a newer step is published. Returns the number of ranks; 0 if the plan does not
 * change. */
static int give_slots_back(launcher_cluster *c) {
    if (c->reuses_dead_slots) return 0;
    c->reuses_dead_slots = true;
    accept_all(c);
    c->distributes_evenly = true;
    for (size_t i = 0; i < c->n; i++) c->at[i].dead = 0;
    const int ranks = plan_ranks(c);
    return plan_differs(c) ? ranks : 0;
}

bool launcher_cluster_refused(launcher_cluster *c, char *text, size_t size) {
    int ranks = 0;
    for (size_t i = 0; i < c->n; i++) ranks += c->at[i].used;
    if (!is_shrinking(c)) return false;
    if (!c->distributes_evenly) {
        c->distributes_evenly = true;
        if (plan_ranks(c) == ranks && plan_differs(c)) {
            snprintf(text, size, "%d ranks, spread evenly", ranks);
            return true;
        }
    }
    c->refused_from = ranks;
    const int fewer = plan_ranks(c);
    snprintf(text, size, "%d ranks, spread evenly", fewer);
    if (fewer >= lowest_ranks(c) && fewer < ranks) return true;
    const int again = give_slots_back(c);
    snprintf(text, size, "%d ranks, with the slots whose ranks died", again);
    return again >= lowest_ranks(c);
}

void launcher_cluster_advice(const launcher_cluster *c, char *text, size_t size) {
    const char *gone = NULL;
    int others = 0;
    for (size_t i = 0; i < c->n; i++) {
        const cluster_host *h = &c->at[i];
        if (h->level == LEVEL_NO_ANSWER || h->lost)
            gone = h->name;
        else
            others += h->slots;
    }
    if (size > 0) text[0] = '\0';
    if (!gone || others >= (is_shrinking(c) ? lowest_ranks(c) : c->goal)) return;
    if (others == 0)
        snprintf(text, size, "host %s does not answer, and no other is left: repair it%s%s", gone,
                 c->options.hosts_file ? ", or change " : "",
                 c->options.hosts_file ? c->options.hosts_file : "");
    else if (is_shrinking(c))
        snprintf(text, size,
                 "host %s does not answer, and --min %d does not allow a start without it: repair "
                 "it, or change %s",
                 gone, lowest_ranks(c), source_of(c));
    else
        snprintf(text, size,
                 "host %s does not answer, and the others have %d slots for %d ranks: --on-failure "
                 "shrink continues without it",
                 gone, others, c->goal);
}

static const char *state_of(const cluster_host *h) {
    if (h->used > 0) return "in use";
    if (h->level == LEVEL_NO_ANSWER) return "left out: does not answer";
    if (h->level == LEVEL_FAILING) return "left out: its ranks failed in two starts in a row";
    if (h->slots > 0 && h->dead >= h->slots) return "left out: its ranks failed";
    return "free";
}

json_t *launcher_cluster_status(const launcher_cluster *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++) {
        const cluster_host *h = &c->at[i];
        json_t *slots = c->is_unlimited ? json_null() : json_integer(h->slots);
        json_array_append_new(list, json_pack("{s:s, s:o, s:i, s:s}", "host", h->name, "slots",
                                              slots, "used", h->used, "state", state_of(h)));
    }
    return list;
}
