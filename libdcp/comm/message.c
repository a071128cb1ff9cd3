/* Lengths travel first, then the messages. Each rank has taken some memory before, and the lengths
 * say whether it suffices everywhere. Where it doesn't, a rank that can't receive says so before
 * anybody sends. */
#include "comm/message.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"

/* What a rank tells another one: how many bytes it sends, marked where they are more than the
 * other's part in the memory that is ready; or that it has failed. */
#define IS_LONG (1ULL << 63)
#define HAS_FAILED UINT64_MAX

unsigned char *comm_message_append(comm_message *message, uint64_t bytes) {
    uint64_t needed = message->bytes + bytes;
    if (needed > message->capacity || !message->data) {
        uint64_t capacity = needed + needed / 2 + 4096;
        unsigned char *data = realloc(message->data, capacity);
        if (!data) return NULL;
        message->data = data;
        message->capacity = capacity;
    }
    unsigned char *at = message->data + message->bytes;
    message->bytes = needed;
    return at;
}

/* Makes room for `bytes` in all. */
static int grow_to(comm_message *message, uint64_t bytes, dcp_error *err) {
    if (message->data && bytes <= message->capacity) return DCP_OK;
    unsigned char *data = realloc(message->data, bytes);
    if (!data) return core_fail_memory(err, bytes);
    message->data = data;
    message->capacity = bytes;
    return DCP_OK;
}

/* Gives back what was ready for a longer message. */
static void give_back(comm_message *message) {
    unsigned char *data = realloc(message->data, message->bytes + 1);
    if (!data) return;
    message->data = data;
    message->capacity = message->bytes + 1;
}

/* Collective: what each rank sends this one. *is_ready: all ranks have the memory for it. */
static int exchange_lengths(dcp_comm *comm, int status, uint64_t ready, const uint64_t *send_bytes,
                            uint64_t *receive_bytes, int *is_ready, dcp_error *err) {
    const size_t ranks = (size_t)comm->size;
    const uint64_t part = ready / ranks;
    uint64_t *out = comm->numbers, *in = out + ranks, mark = 0;
    for (size_t r = 0; r < ranks && !status; r++)
        if (send_bytes[r] > part) mark = IS_LONG;
    for (size_t r = 0; r < ranks; r++) out[r] = status ? HAS_FAILED : send_bytes[r] | mark;
    int comm_status = comm_alltoall(comm, out, comm->eights, in, comm->eights, err);
    if (comm_status) return comm_status;
    for (size_t r = 0; r < ranks; r++)
        if (in[r] == HAS_FAILED) return comm_agree(comm, status, err);
    *is_ready = 1;
    for (size_t r = 0; r < ranks; r++) {
        *is_ready &= !(in[r] & IS_LONG);
        receive_bytes[r] = in[r] & ~IS_LONG;
    }
    return DCP_OK;
}

int comm_message_agree_exchange(dcp_comm *comm, int status, uint64_t ready,
                                const comm_message *send, const uint64_t *send_bytes,
                                comm_message *receive, uint64_t *receive_bytes, dcp_error *err) {
    uint64_t total = 0;
    int is_ready = 0;
    receive->bytes = 0;
    if (!status) status = grow_to(receive, ready, err);
    status = exchange_lengths(comm, status, ready, send_bytes, receive_bytes, &is_ready, err);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) total += receive_bytes[r];
    if (!is_ready) status = comm_agree(comm, grow_to(receive, total, err), err);
    if (status) return status;
    receive->bytes = total;
    give_back(receive);
    return comm_alltoall(comm, send->data, send_bytes, receive->data, receive_bytes, err);
}

/* A message of so many words goes with the agreement on its length. */
enum { SHORT_WORDS = 32 };

static int is_short(uint64_t bytes) { return bytes <= 8 * SHORT_WORDS; }

int comm_message_agree_broadcast(dcp_comm *comm, int status, comm_message *message, int root,
                                 uint64_t *values, size_t n, dcp_error *err) {
    const int is_root = comm->rank == root;
    uint64_t least[COMM_LEAST_VALUES], *const text = least + n + 1;
    memset(least, 0xff, sizeof least);
    if (n) memcpy(least, values, n * sizeof *values);
    if (is_root) least[n] = message->bytes;
    if (is_root && !status && is_short(message->bytes) && message->bytes)
        memcpy(text, message->data, message->bytes);
    if (!is_root && !status) status = grow_to(message, COMM_READY_FOR_ALL, err);
    status = comm_agree_least(comm, status, least, n + 1 + SHORT_WORDS, err);
    if (status) return status;
    if (n) memcpy(values, least, n * sizeof *values);
    const uint64_t bytes = least[n];
    if (bytes > COMM_READY_FOR_ALL)
        status = comm_agree(comm, is_root ? DCP_OK : grow_to(message, bytes, err), err);
    if (status) return status;
    if (!is_root) {
        message->bytes = bytes;
        give_back(message);
    }
    if (!is_short(bytes)) return comm_broadcast(comm, message->data, bytes, root, err);
    if (!is_root) memcpy(message->data, text, bytes);
    return DCP_OK;
}
