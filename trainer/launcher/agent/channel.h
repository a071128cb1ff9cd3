/* Messages between dcp-run and an agent: JSON objects, one per line, over a stream socket. Only
 * launcher_channel_drain waits: the other functions store bytes that cannot be sent yet. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct launcher_channel {
    int fd;    /* -1: closed or broken */
    char *in;  /* received, but not yet returned by launcher_channel_next */
    char *out; /* still to be sent */
    size_t n_in, room_in, n_out, room_out;
} launcher_channel;

/* Takes over the descriptor, and makes it non-blocking. */
void launcher_channel_open(launcher_channel *channel, int fd);
/* Closes the channel; unsent bytes are lost. */
void launcher_channel_close(launcher_channel *channel);

/* Sends `message`, which is freed. NULL (out of memory) breaks the channel, as a failed write does.
 */
void launcher_channel_send(launcher_channel *channel, json_t *message);
/* Sends more of the stored bytes. */
void launcher_channel_flush(launcher_channel *channel);
/* Returns true if bytes are stored; the caller then also polls for POLLOUT. */
bool launcher_channel_is_behind(const launcher_channel *channel);
/* Waits until everything is sent, for at most `limit_s`. */
void launcher_channel_drain(launcher_channel *channel, double limit_s);

/* Receives what has arrived. The channel breaks (fd -1) if the other side has closed it, has sent
 * something that is not a message, or has sent a line of more than 4 MiB. Messages that arrived
 * earlier can still be read. */
void launcher_channel_receive(launcher_channel *channel);
/* Returns the next message that has arrived, which the caller frees; NULL: none. */
json_t *launcher_channel_next(launcher_channel *channel);

/* These functions return members of a message. A missing text is ""; a missing whole number is
 * `otherwise`. */
const char *launcher_message_text(const json_t *message, const char *key);
json_int_t launcher_message_number(const json_t *message, const char *key, json_int_t otherwise);
/* Converts any n bytes to a text: if they are not UTF-8, bytes outside ASCII become '?'. */
json_t *launcher_message_words(const char *bytes, size_t n);
bool launcher_message_is(const json_t *message, const char *kind);
