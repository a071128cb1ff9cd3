/* A hash table with open addressing. In a message a tensor is: type, dimensions and length of the
 * path in one word; the shape; the path. */
#include "step/names.h"

#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"

enum { LEAST_ROOM = 256 };

uint64_t step_names_hash(const char *path, size_t path_bytes) {
    return core_crc64_raw(~0ULL, path, path_bytes);
}

/* The slot of the path: its own, or the empty one where it belongs. */
static uint32_t *slot_of(const step_names *names, const char *path, size_t path_bytes) {
    size_t i = step_names_hash(path, path_bytes) & (names->n_slots - 1);
    for (;; i = (i + 1) & (names->n_slots - 1)) {
        if (!names->slots[i]) return &names->slots[i];
        const char *known = names->list[names->slots[i] - 1].path;
        if (!strncmp(known, path, path_bytes) && !known[path_bytes]) return &names->slots[i];
    }
}

/* Room for one more; at most half of the slots are taken. */
static int grow_names(step_names *names, dcp_error *err) {
    if (names->n < names->room) return DCP_OK;
    size_t room = names->room ? 2 * names->room : LEAST_ROOM;
    dcp_tensor *list = realloc(names->list, room * sizeof *list);
    if (list) names->list = list;
    uint32_t *slots = calloc(2 * room, sizeof *slots);
    if (!list || !slots) {
        free(slots);
        return core_fail_memory(err, room * sizeof *list);
    }
    free(names->slots);
    names->slots = slots;
    names->n_slots = 2 * room;
    names->room = room;
    for (size_t i = 0; i < names->n; i++)
        *slot_of(names, list[i].path, strlen(list[i].path)) = (uint32_t)i + 1;
    return DCP_OK;
}

int step_names_add(step_names *names, const dcp_tensor *tensor, size_t path_bytes, uint32_t *number,
                   int *same, dcp_error *err) {
    int status = grow_names(names, err);
    if (status) return status;
    uint32_t *slot = slot_of(names, tensor->path, path_bytes);
    *same = 1;
    if (*slot) {
        *number = *slot - 1;
        *same = core_tensor_same(&names->list[*number], tensor);
        return DCP_OK;
    }
    char *path = malloc(path_bytes + 1);
    if (!path) return core_fail_memory(err, path_bytes);
    memcpy(path, tensor->path, path_bytes);
    path[path_bytes] = 0;
    *number = (uint32_t)names->n++;
    *slot = *number + 1;
    names->list[*number] = *tensor;
    names->list[*number].path = path;
    return DCP_OK;
}

uint64_t step_names_fingerprint(const step_names *names) {
    uint64_t all = names->n;
    for (size_t i = 0; i < names->n; i++) {
        const dcp_tensor *t = &names->list[i];
        const uint64_t head = (uint64_t)t->dtype | (uint64_t)t->ndim << 8;
        uint64_t raw = core_crc64_raw(~0ULL, &head, sizeof head);
        raw = core_crc64_raw(raw, t->shape, 8ULL * t->ndim);
        all ^= core_crc64_raw(raw, t->path, strlen(t->path));
    }
    return all;
}

void step_names_free(step_names *names) {
    for (size_t i = 0; i < names->n; i++) free((char *)names->list[i].path);
    free(names->list);
    free(names->slots);
    *names = (step_names){0};
}

int step_names_send(comm_message *message, const dcp_tensor *tensor, dcp_error *err) {
    uint64_t path_bytes = strlen(tensor->path), words = 1 + tensor->ndim + (path_bytes + 7) / 8;
    uint64_t *at = (uint64_t *)(void *)comm_message_append(message, 8 * words);
    if (!at) return core_fail_memory(err, message->bytes);
    at[words - 1] = 0;
    at[0] = (uint64_t)tensor->dtype | (uint64_t)tensor->ndim << 8 | path_bytes << 16;
    memcpy(at + 1, tensor->shape, 8ULL * tensor->ndim);
    memcpy(at + 1 + tensor->ndim, tensor->path, path_bytes);
    return DCP_OK;
}

int step_names_receive(const uint64_t **at, const uint64_t *end, dcp_tensor *tensor,
                       size_t *path_bytes, dcp_error *err) {
    uint64_t left = (uint64_t)(end - *at), bytes;
    const uint64_t *words = *at;
    *tensor = (dcp_tensor){.dtype = (dcp_dtype)(words[0] & 0xff), .ndim = words[0] >> 8 & 0xff};
    *path_bytes = words[0] >> 16;
    if (tensor->ndim > DCP_MAX_DIMS || !*path_bytes || *path_bytes > DCP_MAX_PATH ||
        1 + tensor->ndim + (*path_bytes + 7) / 8 > left ||
        memchr(words + 1 + tensor->ndim, 0, *path_bytes))
        return core_fail(err, DCP_ERR_MISMATCH, "a rank sent names of tensors that are none");
    memcpy(tensor->shape, words + 1, 8ULL * tensor->ndim);
    if (!tensor->ndim) tensor->shape[0] = 1;
    tensor->path = (const char *)(words + 1 + tensor->ndim);
    *at = words + 1 + tensor->ndim + (*path_bytes + 7) / 8;
    if (core_tensor_size(tensor->dtype, tensor->ndim, tensor->shape, &bytes)) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH, "a rank sent a tensor of no type or size");
}
