#include "launcher/control/control.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/control/socket.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { CLIENTS = 64, REQUEST_BYTES = 1024, ROUNDS = 256 };

typedef enum client_state {
    CLIENT_FREE,
    CLIENT_ASKING,   /* its line is not complete yet */
    CLIENT_ASKED,    /* its request is complete, until launcher_control_next returns it */
    CLIENT_WAITING,  /* its request was returned, until launcher_control_answer */
    CLIENT_ANSWERED, /* the rest of the answer is still to be sent */
} client_state;

typedef struct control_client {
    client_state state;
    int fd;
    uint64_t id; /* counts from 1; 0 is the listening socket */
    launcher_request asked;
    char line[REQUEST_BYTES];
    size_t got;
    char *answer;
    size_t length, sent;
} control_client;

struct launcher_control {
    int epoll;
    launcher_socket socket;
    uint64_t last_id;
    char *made; /* the folder of the socket; this process made the last n_made folders of its
                   path */
    int n_made;
    control_client clients[CLIENTS];
};

static control_client *find_client(launcher_control *control, uint64_t id) {
    for (int i = 0; i < CLIENTS; i++)
        if (control->clients[i].state != CLIENT_FREE && control->clients[i].id == id)
            return &control->clients[i];
    return NULL;
}

/* The shutdown ends the connection even if a child has inherited it. */
static void drop_client(control_client *client) {
    shutdown(client->fd, SHUT_RDWR);
    close(client->fd);
    free(client->answer);
    *client = (control_client){.fd = -1};
}

/* Sets the events to wait for on a client's connection. The end of the connection is always among
 * them. */
static void await_client(launcher_control *control, control_client *client, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = client->id};
    epoll_ctl(control->epoll, EPOLL_CTL_MOD, client->fd, &event);
}

/* Sends what can be sent without waiting; drops the client after the last byte. */
static void send_rest(launcher_control *control, control_client *client) {
    const ssize_t n = send(client->fd, client->answer + client->sent, client->length - client->sent,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) client->sent += (size_t)n;
    if (client->sent == client->length || (n < 0 && errno != EAGAIN && errno != EINTR))
        drop_client(client);
    else
        await_client(control, client, EPOLLOUT);
}

static void answer_client(launcher_control *control, control_client *client, json_t *answer) {
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    if (!text || asprintf(&client->answer, "%s\n", text) < 0) {
        client->answer = NULL;
        drop_client(client);
    } else {
        client->state = CLIENT_ANSWERED;
        client->length = strlen(client->answer);
        send_rest(control, client);
    }
    free(text);
}

static void refuse_client(launcher_control *control, control_client *client, const char *why) {
    answer_client(control, client, json_pack("{s:s}", "error", why));
}

/* Returns why a line is not a request; NULL if it is one. */
static const char *parse_request(const char *line, size_t bytes, launcher_request *out) {
    static const char *const words[] = {"status", "save", "resize", "stop"};
    json_t *json = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *ask = json_string_value(json_object_get(json, "ask"));
    const json_t *ranks = json_object_get(json, "ranks");
    const char *why =
        "not a request: send {\"ask\": WHAT}, with \"status\", \"save\", \"resize\" or "
        "\"stop\" for WHAT";
    for (size_t i = 0; ask && i < sizeof words / sizeof *words; i++) {
        if (strcmp(ask, words[i]) != 0) continue;
        out->what = (launcher_request_kind)i;
        why = NULL;
    }
    const json_int_t n = json_integer_value(ranks);
    if (!why && out->what == LAUNCHER_REQUEST_RESIZE) {
        out->ranks = n >= 1 && n <= INT_MAX ? (int)n : 0;
        if (!out->ranks) why = "a resize needs \"ranks\", a number of at least 1";
    }
    json_decref(json);
    return why;
}

/* Handles the line of a client once it is complete. A client sends only one line. */
static void take_line(launcher_control *control, control_client *client, size_t length) {
    const char *why = parse_request(client->line, length, &client->asked);
    if (why) {
        refuse_client(control, client, why);
        return;
    }
    client->asked.client = client->id;
    client->state = CLIENT_ASKED;
    await_client(control, client, 0);
}

static void read_client(launcher_control *control, control_client *client) {
    const ssize_t n = recv(client->fd, client->line + client->got,
                           sizeof client->line - client->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        drop_client(client);
        return;
    }
    client->got += (size_t)n;
    const char *end = memchr(client->line, '\n', client->got);
    if (end)
        take_line(control, client, (size_t)(end - client->line));
    else if (client->got == sizeof client->line)
        refuse_client(control, client, "not a request: the line is too long");
}

/* Returns a place for another client. If all places are taken, drops the oldest client whose
 * request is not complete, or that has not received its whole answer yet. Returns NULL if there is
 * no such client, because all clients are waiting for answers. */
static control_client *find_place(launcher_control *control) {
    control_client *oldest = NULL;
    for (int i = 0; i < CLIENTS; i++) {
        control_client *client = &control->clients[i];
        if (client->state == CLIENT_FREE) return client;
        if ((client->state == CLIENT_ASKING || client->state == CLIENT_ANSWERED) &&
            (!oldest || client->id < oldest->id))
            oldest = client;
    }
    if (oldest) drop_client(oldest);
    return oldest;
}

static void turn_away(int fd, const char *why) {
    char line[128];
    const int n = snprintf(line, sizeof line, "{\"error\":\"%s\"}\n", why);
    send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void accept_client(launcher_control *control) {
    const int fd = accept4(control->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (!launcher_socket_is_of_owner(fd)) {
        turn_away(fd, "this run belongs to another user");
        return;
    }
    control_client *client = find_place(control);
    if (!client) {
        turn_away(fd, "too many requests wait: try again later");
        return;
    }
    *client = (control_client){.state = CLIENT_ASKING, .fd = fd, .id = ++control->last_id};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = client->id};
    if (epoll_ctl(control->epoll, EPOLL_CTL_ADD, fd, &event) != 0) drop_client(client);
}

static void take_event(launcher_control *control, const struct epoll_event *event) {
    if (event->data.u64 == 0) {
        accept_client(control);
        return;
    }
    control_client *client = find_client(control, event->data.u64);
    if (!client) return;
    if (client->state == CLIENT_ASKING)
        read_client(control, client);
    else if (event->events & (EPOLLHUP | EPOLLERR))
        drop_client(client);
    else if (client->state == CLIENT_ANSWERED)
        send_rest(control, client);
}

/* Returns true if there is a request, which then waits for its answer. */
static bool take_request(launcher_control *control, launcher_request *out) {
    for (int i = 0; i < CLIENTS; i++) {
        control_client *client = &control->clients[i];
        if (client->state != CLIENT_ASKED) continue;
        client->state = CLIENT_WAITING;
        *out = client->asked;
        return true;
    }
    return false;
}

bool launcher_control_next(launcher_control *control, launcher_request *out) {
    for (int i = 0; i < ROUNDS; i++) {
        struct epoll_event events[CLIENTS];
        if (take_request(control, out)) return true;
        const int n = epoll_wait(control->epoll, events, CLIENTS, 0);
        for (int k = 0; k < n; k++) take_event(control, &events[k]);
        if (n <= 0) break;
    }
    return take_request(control, out);
}

void launcher_control_answer(launcher_control *control, uint64_t id, json_t *answer) {
    control_client *client = find_client(control, id);
    if (client && client->state == CLIENT_WAITING)
        answer_client(control, client, answer);
    else
        json_decref(answer);
}

int launcher_control_fd(const launcher_control *control) { return control->epoll; }

/* Makes a directory and its missing parents. Returns how many were made, or -1 with errno. */
static int make_folders(char *dir) {
    struct stat st;
    if (stat(dir, &st) == 0 || errno != ENOENT) return 0;
    char *slash = strrchr(dir, '/');
    int above = 0;
    if (slash && slash != dir) {
        *slash = '\0';
        above = make_folders(dir);
        *slash = '/';
    }
    if (above < 0 || (mkdir(dir, 0777) != 0 && errno != EEXIST)) return -1;
    return above + 1;
}

static void remove_folders(launcher_control *control) {
    for (int i = 0; i < control->n_made && rmdir(control->made) == 0; i++) {
        char *slash = strrchr(control->made, '/');
        if (!slash || slash == control->made) break;
        *slash = '\0';
    }
}

/* Makes `dir`, and returns the path of the socket in it, which the caller frees; NULL with errno.
 */
static char *path_in(launcher_control *control, const char *dir) {
    char *path = NULL;
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') length--;
    control->made = strndup(dir, length);
    if (!control->made || asprintf(&path, "%s/.control", control->made) < 0) return NULL;
    control->n_made = make_folders(control->made);
    if (control->n_made >= 0) return path;
    free(path);
    return NULL;
}

static int listen_to(launcher_control *control, const char *path, const char *dir) {
    char why[LAUNCHER_SOCKET_WHY], *inside = path ? NULL : path_in(control, dir);
    if (!path && !inside) {
        program_note("warning: no requests are accepted: cannot make %s: %s", dir, strerror(errno));
        return 0;
    }
    const launcher_listening result =
        launcher_socket_listen(&control->socket, path ? path : inside, why);
    free(inside);
    if (result == LAUNCHER_LISTENS) {
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->socket.fd, &event) == 0) return 0;
        return program_fail(PROGRAM_USAGE, "cannot watch the control socket: %s", strerror(errno));
    }
    if (path || result == LAUNCHER_OCCUPIED) return program_refuse("%s", why);
    program_note("warning: no requests are accepted: %s", why);
    return 0;
}

int launcher_control_open(launcher_control **out, const char *path, const char *dir) {
    launcher_control *control = calloc(1, sizeof *control);
    *out = NULL;
    if (!control) return program_no_memory();
    control->socket = (launcher_socket){.fd = -1, .file = -1};
    control->epoll = epoll_create1(EPOLL_CLOEXEC);
    const int status = control->epoll < 0 ? program_fail(PROGRAM_USAGE, "cannot watch requests: %s",
                                                         strerror(errno))
                       : path || dir      ? listen_to(control, path, dir)
                                          : 0;
    if (status == 0)
        *out = control;
    else
        launcher_control_close(control);
    return status;
}

void launcher_control_close(launcher_control *control) {
    if (!control) return;
    const bool listens = control->socket.fd >= 0;
    launcher_socket_close(&control->socket);
    for (int i = 0; i < CLIENTS; i++) {
        const client_state state = control->clients[i].state;
        if (state == CLIENT_ASKED || state == CLIENT_WAITING)
            refuse_client(control, &control->clients[i], "the run has ended");
    }
    if (listens || control->n_made > 0) remove_folders(control);
    for (int i = 0; i < CLIENTS; i++)
        if (control->clients[i].state != CLIENT_FREE) drop_client(&control->clients[i]);
    if (control->epoll >= 0) close(control->epoll);
    free(control->made);
    free(control);
}

enum { MAX_RANKS = 4096, STATUS_S = 30 };

static const char about[] =
    "Common use:\n"
    "  dcp-run ctl ckpt/.control status      what the run does\n"
    "  dcp-run ctl ckpt/.control resize 8    continue with 8 ranks\n"
    "\n"
    "Sends a request to the dcp-run that listens at PATH, waits for the answer, and prints it as\n"
    "one JSON object. PATH is the argument of --control, or .control in the checkpoint directory;\n"
    "the checkpoint directory itself may be given as well.\n"
    "\n"
    "  status    ranks, hosts, steps, restarts\n"
    "  save      save a step now and continue; answered when the step is saved\n"
    "  resize N  save, and continue with N ranks; answered when these have done a step\n"
    "  stop      save and end";
static const char statuses[] = "Exit status: 0 done; 2 wrong usage, or no dcp-run of this user is "
                               "at PATH; 3 the request failed.";

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
    return program_refuse("%s: not a request; give status, save, resize N or stop", args[1]), NULL;
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

static int query_supervisor(const char *path, const char *line) {
    char why[LAUNCHER_SOCKET_WHY], *text = NULL;
    size_t room = 0;
    const int fd = launcher_socket_connect(path, why);
    if (fd < 0) return program_refuse("%s", why);
    if (strstr(line, "status")) { /* the only request that is answered immediately */
        const struct timeval limit = {.tv_sec = STATUS_S};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    const bool is_sent = send(fd, line, strlen(line), MSG_NOSIGNAL) >= 0 || errno == EPIPE;
    FILE *answer = fdopen(fd, "r");
    errno = 0;
    const ssize_t bytes = is_sent && answer ? getline(&text, &room, answer) : 0;
    const int code = errno;
    if (answer)
        fclose(answer);
    else
        close(fd);
    const int status =
        bytes < 0 && code == EAGAIN
            ? program_fail(PROGRAM_FAILED,
                           "dcp-run does not answer at %s: it is stopped, or waits for a disk",
                           path)
            : print_answer(text ? text : "", bytes > 0 ? (size_t)bytes : 0);
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
    status = query_supervisor(args[0], line);
    free(line);
    return status;
}
