/* A set of names is a hash table with open addressing. In a message, a tensor is one word (its
 * type, its number of dimensions and the length of its path), followed by its shape and its
 * path. */
#include "reader/union.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/vote.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "reader/checkpoint.h"
#include "reader/lookup.h"

enum { LEAST_ROOM = 256 };

/* Depends on the path alone. */
static uint64_t names_hash(const char *path, size_t path_bytes) {
    return core_crc64_raw(~0ULL, path, path_bytes);
}

/* Returns the path's slot, or the empty slot where it belongs. */
static uint32_t *slot_of(const reader_names *names, const char *path, size_t path_bytes) {
    size_t i = names_hash(path, path_bytes) & (names->n_slots - 1);
    for (;; i = (i + 1) & (names->n_slots - 1)) {
        if (!names->slots[i]) return &names->slots[i];
        const char *known = names->list[names->slots[i] - 1].path;
        if (!strncmp(known, path, path_bytes) && !known[path_bytes]) return &names->slots[i];
    }
}

/* Makes room for one more tensor. At most half of the slots are in use. */
static int grow_names(reader_names *names, dcp_error *err) {
    if (names->n < names->room) return DCP_OK;
    size_t room = names->room ? 2 * names->room : LEAST_ROOM;
    dcp_tensor *list = core_array_grow(names->list, room, sizeof *list);
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

/* Finds the tensor, or adds it. *number is its place in the list. If the set has the path with a
 * different type or shape, *same is false and the set remains unchanged. */
static int names_add(reader_names *names, const dcp_tensor *tensor, size_t path_bytes,
                     uint32_t *number, bool *same, dcp_error *err) {
    int status = grow_names(names, err);
    if (status) return status;
    uint32_t *slot = slot_of(names, tensor->path, path_bytes);
    *same = true;
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

uint64_t reader_names_fingerprint(const reader_names *names) {
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

void reader_names_free(reader_names *names) {
    for (size_t i = 0; i < names->n; i++) free((char *)names->list[i].path);
    free(names->list);
    free(names->slots);
    *names = (reader_names){0};
}

/* Appends the tensor to a message, in whole 64-bit words. */
static int names_send(comm_buffer *message, const dcp_tensor *tensor, dcp_error *err) {
    uint64_t path_bytes = strlen(tensor->path), words = 1 + tensor->ndim + (path_bytes + 7) / 8;
    uint64_t *at = (uint64_t *)(void *)comm_buffer_append(message, 8 * words);
    if (!at) return core_fail_memory(err, message->bytes);
    at[words - 1] = 0;
    at[0] = (uint64_t)tensor->dtype | (uint64_t)tensor->ndim << 8 | path_bytes << 16;
    memcpy(at + 1, tensor->shape, 8ULL * tensor->ndim);
    memcpy(at + 1 + tensor->ndim, tensor->path, path_bytes);
    return DCP_OK;
}

/* Reads a tensor at *at and advances *at. The tensor's path points into the message and does not
 * end with a NUL. Returns DCP_ERR_MISMATCH if no valid tensor lies before `end`. */
static int names_receive(const uint64_t **at, const uint64_t *end, dcp_tensor *tensor,
                         size_t *path_bytes, dcp_error *err) {
    uint64_t left = (uint64_t)(end - *at), bytes;
    const uint64_t *words = *at;
    *tensor = (dcp_tensor){.dtype = (dcp_dtype)(words[0] & 0xff), .ndim = words[0] >> 8 & 0xff};
    *path_bytes = words[0] >> 16;
    if (tensor->ndim > DCP_MAX_DIMS || !*path_bytes || *path_bytes > DCP_MAX_PATH ||
        1 + tensor->ndim + (*path_bytes + 7) / 8 > left ||
        memchr(words + 1 + tensor->ndim, 0, *path_bytes))
        return core_fail(err, DCP_ERR_MISMATCH, "a rank sent invalid names of tensors");
    memcpy(tensor->shape, words + 1, 8ULL * tensor->ndim);
    if (!tensor->ndim) tensor->shape[0] = 1;
    tensor->path = (const char *)(words + 1 + tensor->ndim);
    *at = words + 1 + tensor->ndim + (*path_bytes + 7) / 8;
    if (core_tensor_size(tensor->dtype, tensor->ndim, tensor->shape, &bytes)) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH, "a rank sent a tensor with an invalid type or size");
}

/* Each name is sent to the rank that its hash determines. That rank sends it to all ranks. The meta
 * is sent to all ranks, too. */

int reader_own_files_name(reader_own_files *own, reader_names *names, const dcp_tensor *tensor,
                          size_t path_bytes, uint32_t *number, dcp_error *err) {
    bool same = false;
    int status = names_add(names, tensor, path_bytes, number, &same, err);
    if (!status && !same && !own->clash)
        own->clash =
            reader_join_fail_shape(own->ckpt, names->list[*number].path, &own->clash_error);
    return status;
}

static bool reads_any(const reader_own_files *own) { return own->first != SIZE_MAX; }

/* Collective; begins with comm_agree of `status`. Sets *are_alike to true if every rank has read
 * files, and all files have the same tensors and meta. */
static int compare_files(const reader_own_files *own, int status, bool *are_alike, dcp_error *err) {
    const dcp_checkpoint *ckpt = own->ckpt;
    const bool reads = !status && reads_any(own);
    bool same_names, same_count, same_meta, may_be = reads && !own->clash;
    uint64_t names = 0, count = 0, meta = 0;
    if (reads) {
        names = reader_names_fingerprint(&own->names);
        count = own->names.n; /* a second check, as files can be forged to have any fingerprint */
        meta = core_crc64_raw(~0ULL, ckpt->state_id, sizeof ckpt->state_id);
        meta = core_crc64_raw(meta, ckpt->json, strlen(ckpt->json));
    }
    comm_vote v = {0};
    comm_vote_all(&v, &may_be);
    comm_vote_equal(&v, true, &names, &same_names);
    comm_vote_equal(&v, true, &count, &same_count);
    comm_vote_equal(&v, true, &meta, &same_meta);
    status = comm_vote_run(ckpt->comm, &v, status, err);
    *are_alike = !status && may_be && same_names && same_count && same_meta;
    return status;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const dcp_tensor *)a)->path, ((const dcp_tensor *)b)->path);
}

/* Makes the checkpoint's tensors from the list, which is sorted by path. Copies the paths. */
static int list_tensors(dcp_checkpoint *ckpt, const dcp_tensor *list, size_t n, dcp_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(list[i].path) + 1;
    ckpt->tensors = calloc(n + 1, sizeof *ckpt->tensors);
    ckpt->tensor_paths = malloc(bytes + 1);
    if (!ckpt->tensors || !ckpt->tensor_paths) return core_fail_memory(err, bytes);
    char *path = ckpt->tensor_paths;
    for (; ckpt->n_tensors < n; ckpt->n_tensors++) {
        reader_tensor *t = &ckpt->tensors[ckpt->n_tensors];
        t->tensor = list[ckpt->n_tensors];
        t->tensor.path = path;
        t->bytes = dcp_tensor_bytes(&t->tensor);
        path = stpcpy(path, list[ckpt->n_tensors].path) + 1;
    }
    return DCP_OK;
}

static int take_names(dcp_checkpoint *ckpt, const reader_names *names, dcp_error *err) {
    dcp_tensor *sorted = NULL;
    size_t in_order = 1;
    while (in_order < names->n && by_path(&names->list[in_order - 1], &names->list[in_order]) < 0)
        in_order++;
    if (in_order < names->n) {
        sorted = core_array(names->n, sizeof *sorted);
        if (!sorted) return core_fail_memory(err, names->n * sizeof *sorted);
        memcpy(sorted, names->list, names->n * sizeof *sorted);
        qsort(sorted, names->n, sizeof *sorted, by_path);
    }
    int status = list_tensors(ckpt, sorted ? sorted : names->list, names->n, err);
    free(sorted);
    return status;
}

static uint64_t words_of_name(const dcp_tensor *t) {
    return 1 + t->ndim + (strlen(t->path) + 7) / 8;
}

/* Collective; begins with comm_agree of `status`. Sends each name to the rank that its hash
 * determines. */
static int send_names(const reader_own_files *own, reader_alltoall *alltoall, int status,
                      dcp_error *err) {
    const reader_names *names = &own->names;
    comm_buffer one = {0};
    const uint64_t size = (uint64_t)alltoall->comm->size;
    if (!status) status = reader_alltoall_make(alltoall, alltoall->comm, err);
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < names->n && !status; i++) {
            const dcp_tensor *t = &names->list[i];
            int to = (int)(names_hash(t->path, strlen(t->path)) % size);
            if (!placing) {
                reader_alltoall_count(alltoall, to, words_of_name(t));
                continue;
            }
            one.bytes = 0;
            status = names_send(&one, t, err);
            if (!status)
                memcpy(reader_alltoall_reserve(alltoall, to, one.bytes / 8), one.data, one.bytes);
        }
        if (!placing && !status) status = reader_alltoall_allocate(alltoall, err);
    }
    free(one.data);
    return reader_alltoall_run(alltoall, status, err);
}

static int receive_names(reader_own_files *own, const uint64_t *at, const uint64_t *end,
                         reader_names *names, dcp_error *err) {
    int status = DCP_OK;
    while (at < end && !status) {
        dcp_tensor tensor;
        size_t path_bytes;
        uint32_t number;
        status = names_receive(&at, end, &tensor, &path_bytes, err);
        if (!status) status = reader_own_files_name(own, names, &tensor, path_bytes, &number, err);
    }
    return status;
}

/* The head of the meta's message; the JSON text follows, with a NUL. */
typedef struct meta_head {
    uint64_t step;
    char state_id[24];
} meta_head;

static int put_meta(const dcp_checkpoint *ckpt, comm_buffer *message, dcp_error *err) {
    const size_t bytes = strlen(ckpt->json) + 1;
    meta_head head = {.step = ckpt->step};
    memcpy(head.state_id, ckpt->state_id, sizeof ckpt->state_id);
    unsigned char *at = comm_buffer_append(message, sizeof head + bytes);
    if (!at) return core_fail_memory(err, bytes);
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, ckpt->json, bytes);
    return DCP_OK;
}

static int take_meta(const reader_own_files *own, const comm_buffer *message, dcp_error *err) {
    dcp_checkpoint *ckpt = own->ckpt;
    const char *json = (const char *)message->data + sizeof(meta_head);
    meta_head head;
    if (reader_reads_file(ckpt, 0)) return DCP_OK;
    if (message->bytes <= sizeof head || json[message->bytes - sizeof head - 1])
        return core_fail(err, DCP_ERR_MISMATCH, "a rank sent no meta");
    memcpy(&head, message->data, sizeof head);
    if (head.state_id[16]) return core_fail(err, DCP_ERR_MISMATCH, "a rank sent no meta");
    if (reads_any(own))
        return !strcmp(json, ckpt->json) && !strcmp(head.state_id, ckpt->state_id)
                   ? DCP_OK
                   : reader_join_fail_meta(ckpt, 0, own->first, err);
    ckpt->step = head.step;
    strcpy(ckpt->state_id, head.state_id);
    ckpt->json = strdup(json);
    return ckpt->json ? DCP_OK : core_fail_memory(err, message->bytes);
}

/* Collective. Sends the meta of the first file to all ranks. */
static int share_meta(const reader_own_files *own, int *own_status, dcp_error *err) {
    const dcp_checkpoint *ckpt = own->ckpt;
    comm_buffer meta = {0};
    int status = reader_reads_file(ckpt, 0) ? put_meta(ckpt, &meta, err) : DCP_OK;
    status =
        comm_buffer_agree_broadcast(ckpt->comm, status, &meta, ckpt->files[0].reader, NULL, err);
    if (!status) *own_status = take_meta(own, &meta, err);
    free(meta.data);
    return status;
}

/* Collective; begins with comm_agree of `status`. Sends the names to all ranks. */
static int send_all(const reader_names *names, reader_alltoall *alltoall, int status,
                    dcp_error *err) {
    comm_buffer one = {0};
    if (!status) status = reader_alltoall_make(alltoall, alltoall->comm, err);
    for (size_t i = 0; i < names->n && !status; i++)
        status = names_send(&one, &names->list[i], err);
    for (int r = 0; r < alltoall->comm->size && !status; r++)
        reader_alltoall_count(alltoall, r, one.bytes / 8);
    if (!status) status = reader_alltoall_allocate(alltoall, err);
    for (int r = 0; r < alltoall->comm->size && !status && one.bytes; r++)
        memcpy(reader_alltoall_reserve(alltoall, r, one.bytes / 8), one.data, one.bytes);
    free(one.data);
    return reader_alltoall_run(alltoall, status, err);
}

static int receive_all(reader_own_files *own, const reader_alltoall *alltoall, dcp_error *err) {
    const uint64_t *at = (const uint64_t *)(const void *)alltoall->in.data;
    reader_names all = {0};
    int status = DCP_OK;
    for (int r = 0; r < alltoall->comm->size && !status; r++) {
        const uint64_t *end = at + alltoall->received[r] / 8;
        status = receive_names(own, at, end, &all, err);
        at = end;
    }
    if (!status) status = take_names(own->ckpt, &all, err);
    reader_names_free(&all);
    return status;
}

/* Collective. */
static int exchange_names(reader_own_files *own, int *own_status, dcp_error *err) {
    dcp_comm *comm = own->ckpt->comm;
    reader_alltoall asked = {.comm = comm}, told = {.comm = comm};
    reader_names names = {0}; /* the names that are sent to this rank */
    int status = send_names(own, &asked, DCP_OK, err);
    if (!status) {
        const uint64_t *at = (const uint64_t *)(const void *)asked.in.data;
        status = receive_names(own, at, at + asked.in.bytes / 8, &names, err);
        reader_alltoall_free(&asked);
        status = send_all(&names, &told, status, err);
    }
    reader_alltoall_free(&asked);
    reader_names_free(&names);
    if (!status) status = share_meta(own, own_status, err);
    if (!status && !*own_status) *own_status = receive_all(own, &told, err);
    reader_alltoall_free(&told);
    return status;
}

int reader_union_make(reader_own_files *own, int status, int *own_status, dcp_error *err) {
    bool are_alike = false;
    *own_status = DCP_OK;
    status = compare_files(own, status, &are_alike, err);
    if (status) return status;
    if (are_alike) {
        *own_status = take_names(own->ckpt, &own->names, err);
        return DCP_OK;
    }
    status = exchange_names(own, own_status, err);
    if (!status && !*own_status && own->clash) {
        *own_status = own->clash;
        if (err) *err = own->clash_error;
    }
    return status;
}
