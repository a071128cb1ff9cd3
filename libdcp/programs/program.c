/* Each message is written with a single call, so messages of several processes remain whole
 * lines. */
#include "programs/program.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/system.h"

static const char package[] = "libdcp ";

bool program_is_packaged(void) {
    return strncmp(program_invocation_short_name, package, strlen(package)) == 0;
}

/* If `text` begins with a tool's name, returns the package's name for that tool, and sets *n to the
 * length of the tool's name. Otherwise returns NULL. */
static const char *packaged_name(const char *text, size_t *n) {
    static const char *const names[][2] = {{"dcp-inspect", "libdcp"},
                                           {"dcp-export", "libdcp export"},
                                           {"dcp-import", "libdcp import"},
                                           {"dcp-reshard", "libdcp reshard"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *n = strlen(names[i][0]);
        if (strncmp(text, names[i][0], *n) == 0) return names[i][1];
    }
    return NULL;
}

const char *program_own_names(const char *text, char *out, size_t size) {
    const bool packaged = program_is_packaged();
    size_t length = 0;
    out[0] = '\0';
    while (*text && length + 1 < size) {
        size_t n = 1;
        const char *name = packaged ? packaged_name(text, &n) : NULL;
        snprintf(out + length, size - length, "%.*s", name ? INT_MAX : 1, name ? name : text);
        length += strlen(out + length);
        text += name ? n : 1;
    }
    return out;
}

static void print_message(const char *fmt, va_list args) {
    char message[1200], own[1200];
    vsnprintf(message, sizeof message, program_own_names(fmt, own, sizeof own), args);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
}

int program_fail(int exit_status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
    return exit_status;
}

void program_note(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
}

int program_refuse(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
    return PROGRAM_USAGE;
}

int program_no_memory(void) { return program_fail(PROGRAM_FAILED, "out of memory"); }

bool program_path_is_wrong(int code) {
    static const int wrong[] = {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP, EISDIR};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (code == wrong[i]) return true;
    return false;
}

bool program_output_is_wrong(int code) {
    return program_path_is_wrong(code) || code == EINVAL || code == ENXIO;
}

int program_fail_errno(const char *what, const char *path) {
    int code = errno;
    if (code == ENOENT) return program_refuse("%s %s: no such file or folder", what, path);
    if (code == ENOTDIR || code == EISDIR || code == ENAMETOOLONG)
        return program_refuse("%s %s: %s", what, path, strerror(code));
    if (code == EEXIST || code == ENOTEMPTY)
        return program_refuse("%s %s: a file of that name exists already; choose another name",
                              what, path);
    return program_fail(PROGRAM_FAILED, "%s %s: %s", what, path, strerror(code));
}

static int exit_status_of(int status) {
    switch (status) {
    case DCP_OK:
        return PROGRAM_DONE;
    case DCP_ERR_CORRUPT:
    case DCP_ERR_MISMATCH:
        return PROGRAM_DIFFERS;
    case DCP_ERR_ARG:
    case DCP_ERR_STATE:
    case DCP_ERR_BUSY:
    case DCP_ERR_NOT_FOUND:
    case DCP_ERR_UNSUPPORTED:
        return PROGRAM_USAGE;
    default:
        return PROGRAM_FAILED;
    }
}

int program_report(const dcp_error *err) {
    if (err->rank < 0 || program_rank() == 0)
        program_note("%s", err->message[0] ? err->message : dcp_status_text(err->status));
    return exit_status_of(err->status);
}

bool program_is_launched(void) {
    for (int i = 0; i <= PROGRAM_BY_PMIX; i++)
        if (getenv(program_launchers[i].rank)) return true;
    const char *tasks = getenv("SLURM_NTASKS");
    return getenv("SLURM_PROCID") && tasks && atoi(tasks) > 1;
}

int program_rank(void) {
    if (!program_is_launched()) return 0;
    for (int i = 0; i <= PROGRAM_BY_SLURM; i++)
        if (getenv(program_launchers[i].rank)) return atoi(getenv(program_launchers[i].rank));
    return 0;
}

static void close_stdout(int status, void *unused) {
    (void)unused;
    const bool failed = ferror(stdout) != 0;
    if ((fclose(stdout) == 0 && !failed) || errno == EPIPE) return;
    program_note("cannot write to stdout: %s", strerror(errno));
    if (status <= PROGRAM_DIFFERS) _exit(PROGRAM_FAILED);
}

void program_check_stdout(void) { on_exit(close_stdout, NULL); }

static void ignore(int number) { (void)number; }

void program_survive_file_limit(void) {
    const struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    sigaction(SIGXFSZ, &action, NULL); /* not SIG_IGN, which started programs would inherit */
}

const char *program_bytes_text(uint64_t bytes, char *text) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 999.5 && unit < 6) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, unit ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return text;
}

int program_cores(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

double program_now_s(void) { return core_clock_now(); }

const program_launcher program_launchers[PROGRAM_LAUNCHERS] = {
    [PROGRAM_BY_OPEN_MPI] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    [PROGRAM_BY_PMI] = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    [PROGRAM_BY_PMIX] = {.rank = "PMIX_RANK"},
    [PROGRAM_BY_SLURM] = {.rank = "SLURM_PROCID", .size = "SLURM_STEP_NUM_TASKS"},
    [PROGRAM_BY_TORCHRUN] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};
