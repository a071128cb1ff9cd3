#include "launcher/agent/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "programs/program.h"

enum { LONGEST_LINE = 4 << 20, PIECE = 16384 };

void launcher_channel_open(launcher_channel *channel, int fd) {
    *channel = (launcher_channel){.fd = fd};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Closes the channel; received messages remain. */
static void break_off(launcher_channel *channel) {
    if (channel->fd >= 0) close(channel->fd);
    channel->fd = -1;
    channel->n_out = 0;
}

void launcher_channel_close(launcher_channel *channel) {
    break_off(channel);
    free(channel->in);
    free(channel->out);
    *channel = (launcher_channel){.fd = -1};
}

/* Makes room for `more` bytes after the first n. */
static int make_room(char **bytes, size_t *room, size_t n, size_t more) {
    if (n + more <= *room) return 0;
    char *larger = realloc(*bytes, 2 * (n + more));
    if (!larger) return -1;
    *bytes = larger;
    *room = 2 * (n + more);
    return 0;
}

void launcher_channel_send(launcher_channel *channel, json_t *message) {
    char *line = message ? json_dumps(message, JSON_COMPACT) : NULL;
    const size_t n = line ? strlen(line) : 0;
    json_decref(message);
    if (channel->fd >= 0 &&
        (!line || make_room(&channel->out, &channel->room_out, channel->n_out, n + 1) != 0))
        break_off(channel);
    if (channel->fd >= 0) {
        memcpy(channel->out + channel->n_out, line, n);
        channel->out[channel->n_out + n] = '\n';
        channel->n_out += n + 1;
    }
    free(line);
    launcher_channel_flush(channel);
}

void launcher_channel_flush(launcher_channel *channel) {
    while (channel->fd >= 0 && channel->n_out > 0) {
        const ssize_t n = send(channel->fd, channel->out, channel->n_out, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) { /* the other side may have sent its last messages before it ended */
            launcher_channel_receive(channel);
            break_off(channel);
            return;
        }
        channel->n_out -= (size_t)n;
        memmove(channel->out, channel->out + n, channel->n_out);
    }
}

bool launcher_channel_is_behind(const launcher_channel *channel) {
    return channel->fd >= 0 && channel->n_out > 0;
}

void launcher_channel_drain(launcher_channel *channel, double limit_s) {
    const double end = program_now_s() + limit_s;
    while (launcher_channel_is_behind(channel)) {
        const double left = end - program_now_s();
        struct pollfd room = {.fd = channel->fd, .events = POLLOUT};
        if (left <= 0 || poll(&room, 1, (int)(left * 1e3) + 1) < 0) return;
        launcher_channel_flush(channel);
    }
}

void launcher_channel_receive(launcher_channel *channel) {
    while (channel->fd >= 0) {
        if (make_room(&channel->in, &channel->room_in, channel->n_in, PIECE) != 0) {
            break_off(channel);
            return;
        }
        const ssize_t n = recv(channel->fd, channel->in + channel->n_in, PIECE, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n > 0) channel->n_in += (size_t)n;
        if (n <= 0 || channel->n_in > LONGEST_LINE) break_off(channel);
    }
}

json_t *launcher_channel_next(launcher_channel *channel) {
    char *end = channel->n_in ? memchr(channel->in, '\n', channel->n_in) : NULL;
    if (!end) return NULL;
    const size_t n = (size_t)(end - channel->in);
    json_t *message = json_loadb(channel->in, n, JSON_REJECT_DUPLICATES, NULL);
    channel->n_in -= n + 1;
    memmove(channel->in, end + 1, channel->n_in);
    if (json_is_object(message)) return message;
    json_decref(message);
    channel->n_in = 0;
    break_off(channel);
    return NULL;
}

const char *launcher_message_text(const json_t *message, const char *key) {
    const char *text = json_string_value(json_object_get(message, key));
    return text ? text : "";
}

json_int_t launcher_message_number(const json_t *message, const char *key, json_int_t otherwise) {
    const json_t *value = json_object_get(message, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

json_t *launcher_message_words(const char *bytes, size_t n) {
    json_t *words = json_stringn(bytes, n);
    char *ascii = words ? NULL : malloc(n + 1);
    for (size_t i = 0; ascii && i < n; i++)
        ascii[i] = (unsigned char)bytes[i] > 126 || bytes[i] == 0 ? '?' : bytes[i];
    if (ascii) words = json_stringn(ascii, n);
    free(ascii);
    return words;
}

bool launcher_message_is(const json_t *message, const char *kind) {
    return strcmp(launcher_message_text(message, "kind"), kind) == 0;
}
