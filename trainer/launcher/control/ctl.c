#include "launcher/control/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/control/socket.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { MAX_RANKS = 4096, STATUS_MS = 30000 };

static const char about[] =
    "Common use:\n"
    "  dcp-run ctl ckpt/.control status      what the run does\n"
    "  dcp-run ctl ckpt/.control resize 8    go on with 8 ranks\n"
    "\n"
    "Asks the dcp-run that listens at PATH, and prints its answer as one JSON object, when that "
    "is\n"
    "there. PATH is what --control said, or .control in the checkpoint directory, which may be\n"
    "given itself.\n"
    "\n"
    "  status    ranks, hosts, steps, restarts\n"
    "  save      save a step now and go on; answered when it is saved\n"
    "  resize N  save, and go on with N ranks; answered when these have done a step\n"
    "  stop      save and end";
static const char statuses[] = "Exit status: 0 done; 2 wrong usage, or no dcp-run of this user is "
                               "at PATH; 3 the request failed.";

/* The request's line, or NULL after a message. */
static char *line_of(char **args, int n) {
    static const char *const words[] = {"status", "save", "stop"};
    char *line = NULL;
    uint64_t ranks;
    if (strcmp(args[1], "resize") == 0) {
        if (n != 3) return program_refuse("resize needs the number of ranks: resize 4"), NULL;
        if (program_count_parse("resize", args[2], 1, MAX_RANKS, &ranks) != 0) return NULL;
        return asprintf(&line, "{\"ask\":\"resize\",\"ranks\":%d}\n", (int)ranks) < 0 ? NULL : line;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(args[1], words[i]) != 0) continue;
        if (n != 2) return program_refuse("%s takes no argument: %s", words[i], args[2]), NULL;
        return asprintf(&line, "{\"ask\":\"%s\"}\n", words[i]) < 0 ? NULL : line;
    }
    return program_refuse("%s: no request; it is status, save, resize N or stop", args[1]), NULL;
}

/* Reads until the other end closes, each time for limit_ms at most (-1: for ever); NULL with errno.
 */
static char *read_answer(int fd, int limit_ms, size_t *bytes) {
    size_t room = 4096;
    char *text = malloc(room);
    *bytes = 0;
    while (text) {
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        const int ready = poll(&polled, 1, limit_ms);
        if (ready == 0) errno = ETIMEDOUT;
        const ssize_t n = ready <= 0 ? -1 : recv(fd, text + *bytes, room - *bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && *bytes > 0)) return text;
        if (n < 0) break;
        *bytes += (size_t)n;
        if (*bytes < room) continue;
        char *more = realloc(text, room *= 2);
        if (!more) break;
        text = more;
    }
    const int code = errno;
    free(text);
    return errno = code, NULL;
}

static int print_answer(const char *text, size_t bytes) {
    json_t *answer = json_loadb(text, bytes, 0, NULL);
    const char *error = json_string_value(json_object_get(answer, "error"));
    int status = PROGRAM_DONE;
    if (error) {
        status = program_fail(PROGRAM_FAILED, "%s", error);
    } else if (!json_is_object(answer)) {
        status =
            program_fail(PROGRAM_FAILED, "the run has ended, or was killed, before it answered");
    } else {
        json_object_del(answer, "ok");
        json_dumpf(answer, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(answer);
    return status;
}

static int ask_supervisor(const char *path, const char *line) {
    char why[LAUNCHER_SOCKET_WHY], *text = NULL;
    size_t bytes = 0;
    const int fd = launcher_socket_connect(path, why);
    if (fd < 0) return program_refuse("%s", why);
    const int waits = strstr(line, "status") == NULL;
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 && errno != EPIPE)
        bytes = 0;
    else
        text = read_answer(fd, waits ? -1 : STATUS_MS, &bytes);
    const int code = errno;
    close(fd);
    if (!text && code == ETIMEDOUT)
        return program_fail(PROGRAM_FAILED,
                            "dcp-run does not answer at %s: it is stopped, or waits "
                            "for a disk",
                            path);
    const int status = print_answer(text ? text : "", bytes);
    free(text);
    return status;
}

int launcher_control_main(int argc, char **argv) {
    static const program_option none[] = {{0}};
    const program_command command = {.name = "dcp-run ctl",
                                     .usage = "PATH status|save|stop\nPATH resize N",
                                     .about = about,
                                     .options = none,
                                     .statuses = statuses};
    char **args;
    int n, status = program_arguments_parse(&command, argc - 1, argv + 1, 2, 3, &args, &n);
    if (status >= 0) return status;
    char *line = line_of(args, n);
    if (!line) return PROGRAM_USAGE;
    status = ask_supervisor(args[0], line);
    free(line);
    return status;
}
