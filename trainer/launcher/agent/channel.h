/* Messages between dcp-run and an agent: JSON objects, one a line, over a stream socket. Nothing
 * here waits: what cannot be sent now is kept until it can. */
#pragma once

#include <jansson.h>
#include <stddef.h>

typedef struct launcher_channel {
    int fd;    /* -1: closed, or broken */
    char *in;  /* what has come and is not a whole line yet */
    char *out; /* what is to be sent */
    size_t n_in, room_in, n_out, room_out;
} launcher_channel;

/* Takes over the descriptor, which becomes non-blocking. */
void launcher_channel_open(launcher_channel *channel, int fd);
/* Closes it; what was not sent is lost. */
void launcher_channel_close(launcher_channel *channel);

/* Sends `message`, which is freed; NULL (no memory) breaks the channel, as a failed write does. */
void launcher_channel_send(launcher_channel *channel, json_t *message);
/* Goes on sending what is kept. */
void launcher_channel_flush(launcher_channel *channel);
/* Whether something is kept, so that poll should look for room (POLLOUT). */
int launcher_channel_is_behind(const launcher_channel *channel);
/* Waits until all is sent, at most `limit_s`. */
void launcher_channel_drain(launcher_channel *channel, double limit_s);

/* Reads what has come. The channel is broken (fd -1) where the other side has closed it, has sent
 * what is no message, or a line of more than 4 MiB. What came before that can still be taken. */
void launcher_channel_receive(launcher_channel *channel);
/* The next message that has come, for the caller to free; NULL: none. */
json_t *launcher_channel_next(launcher_channel *channel);

/* Parts of a message: a text, "" where there is none; a whole number, `otherwise` where none. */
const char *launcher_message_text(const json_t *message, const char *key);
json_int_t launcher_message_number(const json_t *message, const char *key, json_int_t otherwise);
/* Any n bytes as a text: what is no UTF-8 becomes ASCII. */
json_t *launcher_message_words(const char *bytes, size_t n);
int launcher_message_is(const json_t *message, const char *kind);
