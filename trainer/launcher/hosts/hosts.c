/* Host files, and lists of nodes as Slurm writes them into a job's variables. */
#include "launcher/hosts/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"

enum { NAME_BYTES = 256, NAME_DIGITS = 9 };

typedef struct node_visit {
    size_t left; /* how many more names are allowed */
    int (*take)(void *ctx, const char *name);
    void *ctx;
    char name[NAME_BYTES]; /* the name so far, up to the place that is being read */
} node_visit;

static int visit_rest(node_visit *v, size_t length, const char *at, const char *end);

/* Reads a number of at most NAME_DIGITS digits; returns how many digits it has, or 0 if there is no
 * such number. */
static size_t read_digits(const char *at, unsigned long *value) {
    const size_t n = strspn(at, "0123456789");
    if (n > NAME_DIGITS) return 0;
    *value = strtoul(at, NULL, 10);
    return n;
}

/* Visits the names for a range such as "1-3" or "07", which ends at `comma`. The numbers are padded
 * with zeros to the number of digits of the first one. */
static int visit_range(node_visit *v, size_t length, const char *range, const char *comma,
                       const char *rest, const char *end) {
    unsigned long first, last;
    const size_t width = read_digits(range, &first);
    if (width == 0) return -1;
    last = first;
    range += width;
    if (*range == '-') {
        const size_t n = read_digits(++range, &last);
        if (n == 0) return -1;
        range += n;
    }
    if (range != comma || last < first) return -1;
    for (unsigned long i = first; i <= last; i++) {
        const int n = snprintf(v->name + length, sizeof v->name - length, "%0*lu", (int)width, i);
        if (n < 0 || (size_t)n >= sizeof v->name - length) return -1;
        if (visit_rest(v, length + (size_t)n, rest, end) != 0) return -1;
    }
    return 0;
}

/* Visits all names that begin with the first `length` bytes of v->name and continue with the
 * pattern from `at` to `end`. */
static int visit_rest(node_visit *v, size_t length, const char *at, const char *end) {
    while (at < end && *at != '[') {
        if (length + 1 >= sizeof v->name || *at == ']' || isspace((unsigned char)*at)) return -1;
        v->name[length++] = *at++;
    }
    if (at == end) {
        v->name[length] = '\0';
        if (length == 0 || v->left == 0) return -1;
        v->left--;
        return v->take(v->ctx, v->name);
    }
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close) return -1;
    while (at < close) { /* `at` is at '[' or ',' */
        const char *range = at + 1;
        at = range + strcspn(range, ",]");
        if (visit_range(v, length, range, at, close + 1, end) != 0) return -1;
    }
    return 0;
}

/* Returns the comma that ends the first name, or the end; commas in brackets do not count. */
static const char *end_of_name(const char *at) {
    bool inside = false;
    for (; *at && (inside || *at != ','); at++) {
        if (*at == '[') inside = true;
        if (*at == ']') inside = false;
    }
    return at;
}

/* Calls `take` with each name of a list of nodes such as "login,n[1-3,07]x[0-1]", in the order of
 * the list. Returns -1 if the list is malformed, if it has more than `max` names, or if `take` did
 * not return 0; otherwise 0. */
static int launcher_node_list_visit(const char *list, size_t max,
                                    int (*take)(void *ctx, const char *name), void *ctx) {
    node_visit v = {.left = max, .take = take, .ctx = ctx};
    for (const char *at = list;; at++) {
        const char *end = end_of_name(at);
        if (visit_rest(&v, 0, at, end) != 0) return -1;
        if (*end == '\0') return 0;
        at = end;
    }
}

/* Returns count `i` of a list: "4(x2),3" is 4, 4, 3, and the last one repeats. Returns -1 if the
 * list is malformed. */
static long launcher_node_list_count(const char *counts, size_t i) {
    for (const char *at = counts;;) {
        unsigned long value, times = 1;
        size_t n = read_digits(at, &value);
        if (n == 0) return -1;
        at += n;
        if (strncmp(at, "(x", 2) == 0) {
            n = read_digits(at + 2, &times);
            at += 2 + n;
            if (n == 0 || *at++ != ')') return -1;
        }
        if (i < times || *at == '\0') return (long)value;
        i -= times;
        if (*at++ != ',') return -1;
    }
}

enum { FILE_BYTES = 1 << 20, WORD_BYTES = 256 };

void launcher_hosts_free(launcher_hosts *hosts) {
    for (size_t i = 0; i < hosts->n; i++) free(hosts->at[i].name);
    free(hosts->at);
    *hosts = (launcher_hosts){0};
}

static int add_host(launcher_hosts *hosts, const char *name, int slots) {
    launcher_host *grown = realloc(hosts->at, (hosts->n + 1) * sizeof *grown);
    if (!grown) return -1;
    hosts->at = grown;
    grown[hosts->n] = (launcher_host){strdup(name), slots};
    return grown[hosts->n].name && ++hosts->n ? 0 : -1;
}

int launcher_hosts_slots(const launcher_hosts *hosts) {
    long slots = 0;
    for (size_t i = 0; i < hosts->n; i++) slots += hosts->at[i].slots;
    return slots < INT_MAX ? (int)slots : INT_MAX;
}

/* Names of this host. */

/* Returns true if an address is a loopback address, or in the list of this host's addresses. */
static bool is_own_address(const struct sockaddr *address, const struct ifaddrs *own) {
    const struct in_addr *in = &((const struct sockaddr_in *)address)->sin_addr;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    const bool is_four = address->sa_family == AF_INET;
    if (!is_four && address->sa_family != AF_INET6) return false;
    if (is_four ? ntohl(in->s_addr) >> 24 == IN_LOOPBACKNET : IN6_IS_ADDR_LOOPBACK(in6))
        return true;
    for (; own; own = own->ifa_next) {
        if (!own->ifa_addr || own->ifa_addr->sa_family != address->sa_family) continue;
        if (is_four ? ((struct sockaddr_in *)own->ifa_addr)->sin_addr.s_addr == in->s_addr
                    : IN6_ARE_ADDR_EQUAL(&((struct sockaddr_in6 *)own->ifa_addr)->sin6_addr, in6))
            return true;
    }
    return false;
}

static bool leads_here(const char *name, int flags) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;
    struct ifaddrs *own = NULL;
    bool is_here = false;
    if (getaddrinfo(name, NULL, &hints, &found) != 0) return false;
    if (getifaddrs(&own) != 0) own = NULL;
    for (const struct addrinfo *at = found; at && !is_here; at = at->ai_next)
        is_here = is_own_address(at->ai_addr, own);
    freeifaddrs(own);
    freeaddrinfo(found);
    return is_here;
}

bool launcher_hosts_is_local_name(const char *name) {
    char own[HOST_NAME_MAX + 1] = "";
    gethostname(own, sizeof own - 1);
    if (strcasecmp(name, "localhost") == 0 || strcasecmp(name, own) == 0) return true;
    const size_t shorter = strcspn(name, "."), shortest = strcspn(own, ".");
    const bool one_is_short = name[shorter] == '\0' || own[shortest] == '\0';
    if (one_is_short && shorter == shortest && strncasecmp(name, own, shorter) == 0) return true;
    return leads_here(name, AI_NUMERICHOST);
}

bool launcher_hosts_is_local(const char *name) {
    return launcher_hosts_is_local_name(name) || leads_here(name, 0);
}

/* The host file. */

typedef struct hosts_reader {
    const char *path;
    int line;
    launcher_hosts *out;
    char *locals; /* [LAUNCHER_HOSTS_MAX]: 1 if out->at[i] is this host */
} hosts_reader;

static int refuse_line(const hosts_reader *r, const char *what, const char *word,
                       const char *remedy) {
    return program_refuse("%s:%d: %s '%s': %s", r->path, r->line, what, word, remedy);
}

/* Replaces comments by blanks: from # or // to the end of the line, and C's block comments. */
static void blank_comments(char *text) {
    for (char *at = text; *at;) {
        const char *end = at;
        if (*at == '#' || strncmp(at, "//", 2) == 0) {
            end = at + strcspn(at, "\n");
        } else if (strncmp(at, "/*", 2) == 0) {
            const char *close = strstr(at + 2, "*/");
            end = close ? close + 2 : at + strlen(at);
        }
        if (end == at) at++;
        for (; at < end; at++)
            if (*at != '\n') *at = ' ';
    }
}

static int check_host_name(const hosts_reader *r, const char *name) {
    if (name[0] == '^' || name[0] == '+')
        return refuse_line(r, "cannot use", name, "name the hosts to use, one per line");
    if (name[0] == '-') /* ssh would parse it as an option */
        return refuse_line(r, "not a host name", name, "it must begin with a letter or digit");
    if (strchr(name, '@'))
        return refuse_line(r, "a user is not accepted, as in", name,
                           "write only the host, and its user into ~/.ssh/config");
    const char *colon = strchr(name, ':');
    if (colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == '\0')
        return refuse_line(r, "not a host name", name, "write the slots as 'slots=N'");
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-.", *c))
            return refuse_line(
                r, "not a host name", name,
                "it may contain letters, digits, dots and hyphens; 'slots=N' may follow");
    return 0;
}

/* Copies the word at *at, which ends before one of `ends`. Returns -1 if the word is empty or too
 * long. */
static int take_word(const char **at, const char *ends, char word[WORD_BYTES]) {
    const size_t n = strcspn(*at, ends);
    snprintf(word, WORD_BYTES, "%.*s", (int)(n < WORD_BYTES ? n : WORD_BYTES - 1), *at);
    *at += n;
    return n > 0 && n < WORD_BYTES ? 0 : -1;
}

static void skip_blanks(const char **at) { *at += strspn(*at, " \t\r\f\v"); }

static int take_value(const hosts_reader *r, const char **at, const char *key, int *value) {
    char word[WORD_BYTES], *end;
    skip_blanks(at);
    if (**at != '=') return refuse_line(r, "a value is missing at", key, "write 'slots=N'");
    ++*at;
    skip_blanks(at);
    take_word(at, " \t\r\f\v=", word);
    const long number = strtol(word, &end, 10);
    if (end == word || *end != '\0' || number < 0 || number > LAUNCHER_SLOTS_MAX)
        return refuse_line(r, "not a number of slots", word,
                           "it must be a whole number from 0 to 4096");
    *value = (int)number;
    return 0;
}

static bool is_one_of(const char *word, const char *const *list) {
    for (; *list; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

/* Reads the words after the name. *slots and *most remain -1 if they are not given. */
static int read_slots(const hosts_reader *r, const char *at, int *slots, int *most) {
    static const char *const counts[] = {"slots", "cpu", "cpus", "count", NULL};
    static const char *const limits[] = {
        "max_slots", "max-slots", "slots_max", "slots-max", "max_cpu",   "max-cpu", "cpu_max",
        "cpu-max",   "max_count", "max-count", "count_max", "count-max", NULL};
    for (skip_blanks(&at); *at; skip_blanks(&at)) {
        char key[WORD_BYTES];
        take_word(&at, " \t\r\f\v=", key);
        int *value = is_one_of(key, counts) ? slots : is_one_of(key, limits) ? most : NULL;
        if (!value)
            return refuse_line(r, "unknown word", key,
                               "only 'slots=N' and 'max_slots=N' may follow a name");
        if (*value >= 0) return refuse_line(r, "a second value is given by", key, "keep only one");
        const int status = take_value(r, &at, key, value);
        if (status != 0) return status;
    }
    if (*slots >= 0 && *most >= 0 && *most < *slots)
        return refuse_line(r, "more slots than", "max_slots",
                           "'slots' must be at most 'max_slots'");
    return 0;
}

static int mention_host(hosts_reader *r, const char *name, int slots) {
    launcher_hosts *out = r->out;
    const bool is_local = launcher_hosts_is_local_name(name);
    size_t i = 0;
    while (i < out->n && strcmp(out->at[i].name, name) != 0 && !(is_local && r->locals[i])) i++;
    if (i == LAUNCHER_HOSTS_MAX)
        return program_refuse("%s:%d: more than %d hosts", r->path, r->line, LAUNCHER_HOSTS_MAX);
    if (i < out->n) {
        if (slots >= 0)
            return refuse_line(r, "an earlier line also names", name,
                               "name it once, with 'slots=N'");
        if (out->at[i].slots < LAUNCHER_SLOTS_MAX) out->at[i].slots++;
        return 0;
    }
    r->locals[i] = (char)is_local;
    return add_host(out, name, slots >= 0 ? slots : 1) == 0 ? 0 : program_no_memory();
}

static int read_host_line(hosts_reader *r, const char *line) {
    char name[WORD_BYTES];
    int slots = -1, most = -1;
    skip_blanks(&line);
    if (*line == '\0') return 0;
    if (take_word(&line, " \t\r\f\v=", name) != 0)
        return refuse_line(r, "no host name before", "=", "begin the line with one");
    int status = check_host_name(r, name);
    if (status == 0) status = read_slots(r, line, &slots, &most);
    if (status == 0) status = mention_host(r, name, slots >= 0 ? slots : most);
    return status;
}

int launcher_hosts_parse(const char *text, const char *path, launcher_hosts *out) {
    hosts_reader r = {.path = path, .out = out};
    char *copy = strdup(text);
    int status = 0;
    *out = (launcher_hosts){0};
    r.locals = calloc(LAUNCHER_HOSTS_MAX, 1);
    if (!copy || !r.locals) status = program_no_memory();
    if (status == 0) blank_comments(copy);
    for (char *rest = copy, *line; status == 0 && (line = strsep(&rest, "\n")) != NULL;) {
        r.line++;
        status = read_host_line(&r, line);
    }
    if (status == 0 && launcher_hosts_slots(out) == 0)
        status = program_refuse("%s names no host with a slot: write lines such as 'node1 slots=8'",
                                path);
    if (status != 0) launcher_hosts_free(out);
    free(r.locals);
    free(copy);
    return status;
}

char *launcher_hosts_text(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    char *text = malloc(FILE_BYTES + 1);
    const size_t n = text ? fread(text, 1, FILE_BYTES + 1, file) : 0;
    const int code = !text ? ENOMEM : ferror(file) ? errno : n > FILE_BYTES ? EFBIG : 0;
    fclose(file);
    if (code == 0) {
        text[n] = '\0';
        return text;
    }
    free(text);
    errno = code;
    return NULL;
}

/* Slurm's variables. */

/* Returns the tasks of each node as a list of counts, from the first variable that is set. */
static const char *slurm_counts(const char **variable) {
    static const char *const names[] = {"SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
                                        "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(*variable = names[i]);
        if (value && *value) return value;
    }
    return NULL;
}

static int add_node(void *ctx, const char *name) { return add_host(ctx, name, 0); }

int launcher_hosts_of_slurm(launcher_hosts *out) {
    *out = (launcher_hosts){0};
    const char *variable, *counts = slurm_counts(&variable), *nodes = getenv("SLURM_JOB_NODELIST");
    if (!nodes) nodes = getenv("SLURM_NODELIST");
    if (!nodes || !counts)
        return program_refuse("this Slurm job gives no %s: start dcp-run in an allocation of "
                              "sbatch or salloc, or name the hosts with --hosts",
                              nodes ? "number of tasks (SLURM_TASKS_PER_NODE)"
                                    : "nodes (SLURM_JOB_NODELIST)");
    if (launcher_node_list_visit(nodes, LAUNCHER_HOSTS_MAX, add_node, out) != 0) {
        launcher_hosts_free(out);
        return program_refuse("cannot read the list of nodes SLURM_JOB_NODELIST=%s: name the hosts "
                              "with --hosts",
                              nodes);
    }
    for (size_t i = 0; i < out->n; i++) {
        const long slots = launcher_node_list_count(counts, i);
        out->at[i].slots = slots > LAUNCHER_SLOTS_MAX ? LAUNCHER_SLOTS_MAX : (int)slots;
        if (slots > 0) continue;
        launcher_hosts_free(out);
        return program_refuse("cannot read the tasks of each node, %s=%s: name the hosts with "
                              "--hosts",
                              variable, counts);
    }
    return 0;
}
