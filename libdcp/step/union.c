/* Names go to the one rank that their hash tells, and from there to all, with the meta. */
#include "step/union.h"

#include <stdlib.h>
#include <string.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "step/joined.h"
#include "step/spread.h"

int step_own_files_name(step_own_files *own, step_names *names, const dcp_tensor *tensor,
                        size_t path_bytes, uint32_t *number, dcp_error *err) {
    int same, status = step_names_add(names, tensor, path_bytes, number, &same, err);
    if (!status && !same && !own->clash)
        own->clash = step_join_fail_shape(own->ckpt, names->list[*number].path, &own->clash_error);
    return status;
}

static int reads_any(const step_own_files *own) { return own->first != SIZE_MAX; }

/* What ranks compare: each fingerprint with its complement; and a 1 for what is to be so on all. */
enum { NAMES, COUNT = NAMES + 2, META = COUNT + 2, READS_ANY = META + 2, HAS_NO_CLASH, COMPARED };

static void tell_fingerprint(uint64_t fingerprint, uint64_t *told) {
    told[0] = fingerprint;
    told[1] = ~fingerprint;
}

static void tell_own(const step_own_files *own, uint64_t told[COMPARED]) {
    const dcp_checkpoint *ckpt = own->ckpt;
    memset(told, 0xff, COMPARED * sizeof *told);
    told[READS_ANY] = (uint64_t)reads_any(own);
    told[HAS_NO_CLASH] = !own->clash;
    if (!told[READS_ANY]) return;
    uint64_t meta = core_crc64_raw(~0ULL, ckpt->state_id, sizeof ckpt->state_id);
    tell_fingerprint(step_names_fingerprint(&own->names), told + NAMES);
    tell_fingerprint(own->names.n, told + COUNT); /* files can be made to have any fingerprint */
    tell_fingerprint(core_crc64_raw(meta, ckpt->json, strlen(ckpt->json)), told + META);
}

/* Of the least of all ranks'. */
static int are_same(const uint64_t told[COMPARED]) {
    return told[READS_ANY] && told[HAS_NO_CLASH] && told[NAMES] == ~told[NAMES + 1] &&
           told[COUNT] == ~told[COUNT + 1] && told[META] == ~told[META + 1];
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const dcp_tensor *)a)->path, ((const dcp_tensor *)b)->path);
}

/* The tensors of the list, which ascends by path, with paths of their own. */
static int list_tensors(dcp_checkpoint *ckpt, const dcp_tensor *list, size_t n, dcp_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(list[i].path) + 1;
    ckpt->tensors = calloc(n + 1, sizeof *ckpt->tensors);
    ckpt->tensor_paths = malloc(bytes + 1);
    if (!ckpt->tensors || !ckpt->tensor_paths) return core_fail_memory(err, bytes);
    char *path = ckpt->tensor_paths;
    for (; ckpt->n_tensors < n; ckpt->n_tensors++) {
        step_tensor *t = &ckpt->tensors[ckpt->n_tensors];
        t->tensor = list[ckpt->n_tensors];
        t->tensor.path = path;
        t->bytes = dcp_tensor_bytes(&t->tensor);
        path = stpcpy(path, list[ckpt->n_tensors].path) + 1;
    }
    return DCP_OK;
}

static int take_names(dcp_checkpoint *ckpt, const step_names *names, dcp_error *err) {
    dcp_tensor *sorted = NULL;
    size_t in_order = 1;
    while (in_order < names->n && by_path(&names->list[in_order - 1], &names->list[in_order]) < 0)
        in_order++;
    if (in_order < names->n) {
        sorted = malloc(names->n * sizeof *sorted);
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

/* Collective, beginning with comm_agree of `status`. Each name to one rank. */
static int send_names(const step_own_files *own, step_spread *spread, int status, dcp_error *err) {
    const step_names *names = &own->names;
    comm_message one = {0};
    const uint64_t size = (uint64_t)spread->comm->size;
    if (!status) status = step_spread_make(spread, spread->comm, err);
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < names->n && !status; i++) {
            const dcp_tensor *t = &names->list[i];
            int to = (int)(step_names_hash(t->path, strlen(t->path)) % size);
            if (!placing) {
                step_spread_count(spread, to, words_of_name(t));
                continue;
            }
            one.bytes = 0;
            status = step_names_send(&one, t, err);
            if (!status) memcpy(step_spread_place(spread, to, one.bytes / 8), one.data, one.bytes);
        }
        if (!placing && !status) status = step_spread_begin(spread, err);
    }
    free(one.data);
    return step_spread_exchange(spread, status, err);
}

static int receive_names(step_own_files *own, const uint64_t *at, const uint64_t *end,
                         step_names *names, dcp_error *err) {
    int status = DCP_OK;
    while (at < end && !status) {
        dcp_tensor tensor;
        size_t path_bytes;
        uint32_t number;
        status = step_names_receive(&at, end, &tensor, &path_bytes, err);
        if (!status) status = step_own_files_name(own, names, &tensor, path_bytes, &number, err);
    }
    return status;
}

/* The message of the meta: the JSON text, with a NUL, follows. */
typedef struct meta_head {
    uint64_t step;
    char state_id[24];
} meta_head;

static int put_meta(const dcp_checkpoint *ckpt, comm_message *message, dcp_error *err) {
    const size_t bytes = strlen(ckpt->json) + 1;
    meta_head head = {.step = ckpt->step};
    memcpy(head.state_id, ckpt->state_id, sizeof ckpt->state_id);
    unsigned char *at = comm_message_append(message, sizeof head + bytes);
    if (!at) return core_fail_memory(err, bytes);
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, ckpt->json, bytes);
    return DCP_OK;
}

static int take_meta(const step_own_files *own, const comm_message *message, dcp_error *err) {
    dcp_checkpoint *ckpt = own->ckpt;
    const char *json = (const char *)message->data + sizeof(meta_head);
    meta_head head;
    if (step_reads_file(ckpt, 0)) return DCP_OK;
    if (message->bytes <= sizeof head || json[message->bytes - sizeof head - 1])
        return core_fail(err, DCP_ERR_MISMATCH, "a rank sent no meta");
    memcpy(&head, message->data, sizeof head);
    if (head.state_id[16]) return core_fail(err, DCP_ERR_MISMATCH, "a rank sent no meta");
    if (reads_any(own))
        return !strcmp(json, ckpt->json) && !strcmp(head.state_id, ckpt->state_id)
                   ? DCP_OK
                   : step_join_fail_meta(ckpt, 0, own->first, err);
    ckpt->step = head.step;
    strcpy(ckpt->state_id, head.state_id);
    ckpt->json = strdup(json);
    return ckpt->json ? DCP_OK : core_fail_memory(err, message->bytes);
}

/* Collective: the meta of the first file to all. */
static int share_meta(const step_own_files *own, int *own_status, dcp_error *err) {
    const dcp_checkpoint *ckpt = own->ckpt;
    comm_message meta = {0};
    int status = step_reads_file(ckpt, 0) ? put_meta(ckpt, &meta, err) : DCP_OK;
    status = comm_message_agree_broadcast(ckpt->comm, status, &meta, ckpt->files[0].reader, NULL, 0,
                                          err);
    if (!status) *own_status = take_meta(own, &meta, err);
    free(meta.data);
    return status;
}

/* Collective, beginning with comm_agree of `status`: the names to all ranks alike. */
static int tell_all(const step_names *names, step_spread *spread, int status, dcp_error *err) {
    comm_message one = {0};
    if (!status) status = step_spread_make(spread, spread->comm, err);
    for (size_t i = 0; i < names->n && !status; i++)
        status = step_names_send(&one, &names->list[i], err);
    for (int r = 0; r < spread->comm->size && !status; r++)
        step_spread_count(spread, r, one.bytes / 8);
    if (!status) status = step_spread_begin(spread, err);
    for (int r = 0; r < spread->comm->size && !status && one.bytes; r++)
        memcpy(step_spread_place(spread, r, one.bytes / 8), one.data, one.bytes);
    free(one.data);
    return step_spread_exchange(spread, status, err);
}

static int hear_all(step_own_files *own, const step_spread *spread, dcp_error *err) {
    const uint64_t *at = (const uint64_t *)(const void *)spread->in.data;
    step_names all = {0};
    int status = DCP_OK;
    for (int r = 0; r < spread->comm->size && !status; r++) {
        const uint64_t *end = at + spread->received[r] / 8;
        status = receive_names(own, at, end, &all, err);
        at = end;
    }
    if (!status) status = take_names(own->ckpt, &all, err);
    step_names_free(&all);
    return status;
}

/* Collective. */
static int exchange_names(step_own_files *own, int *own_status, dcp_error *err) {
    dcp_comm *comm = own->ckpt->comm;
    step_spread asked = {.comm = comm}, told = {.comm = comm};
    step_names names = {0}; /* whose hashes tell this rank */
    int status = send_names(own, &asked, DCP_OK, err);
    if (!status) {
        const uint64_t *at = (const uint64_t *)(const void *)asked.in.data;
        status = receive_names(own, at, at + asked.in.bytes / 8, &names, err);
        step_spread_free(&asked);
        status = tell_all(&names, &told, status, err);
    }
    step_spread_free(&asked);
    step_names_free(&names);
    if (!status) status = share_meta(own, own_status, err);
    if (!status && !*own_status) *own_status = hear_all(own, &told, err);
    step_spread_free(&told);
    return status;
}

int step_unite(step_own_files *own, int status, int *own_status, dcp_error *err) {
    uint64_t told[COMPARED] = {0};
    if (!status) tell_own(own, told);
    *own_status = DCP_OK;
    status = comm_agree_least(own->ckpt->comm, status, told, COMPARED, err);
    if (status) return status;
    if (are_same(told)) {
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
