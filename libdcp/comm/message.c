/* Lengths travel first, then the messages. A rank that can't receive says so before anybody sends.
 */
#include "comm/message.h"

#include <stdlib.h>

#include "core/fail.h"

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

int comm_message_exchange(dcp_comm *comm, const comm_message *send, const uint64_t *send_bytes,
                          comm_message *receive, uint64_t *receive_bytes, dcp_error *err) {
    uint64_t total = 0;
    int status = comm_alltoall(comm, send_bytes, comm->eights, receive_bytes, comm->eights, err);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) total += receive_bytes[r];
    receive->bytes = 0;
    if (!comm_message_append(receive, total)) status = core_fail_memory(err, total);
    status = comm_agree(comm, status, err);
    if (status) return status;
    return comm_alltoall(comm, send->data, send_bytes, receive->data, receive_bytes, err);
}

int comm_message_broadcast(dcp_comm *comm, comm_message *message, int root, dcp_error *err) {
    uint64_t bytes = message->bytes;
    int status = comm_broadcast(comm, &bytes, sizeof bytes, root, err);
    if (status) return status;
    if (comm->rank != root) message->bytes = 0;
    if (comm->rank != root && !comm_message_append(message, bytes))
        status = core_fail_memory(err, bytes);
    status = comm_agree(comm, status, err);
    return status ? status : comm_broadcast(comm, message->data, bytes, root, err);
}
