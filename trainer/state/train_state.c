/* Shards in memory, and their registration with libdcp. All ranks register the same tensors in the
 * same order; a rank that holds no part of a tensor registers an empty box. */
#include "state/train_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/program.h"
#include "random/random.h"

enum { PIECE_ELEMS = 1 << 14 };

static const char OFFLOAD_KEY[] = "fsdp.offload_path";

/* Memory in a file. Parts that are not in use need room only on the disk, and in the page cache
 * while the cache has room. The file has no name, so no other process opens it, and it disappears
 * however the process ends. Its room on the disk is allocated in advance, so a disk that becomes
 * full later does no harm. */
struct offload {
    int fd;
    char *at;
    uint64_t bytes; /* whole pages */
};

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

/* Opens a file without a name. If the file system has no such files, makes a file and removes its
 * name immediately. */
static int open_nameless(const char *folder) {
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/.dcp-offload-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) unlink(path);
    return named;
}

static int fail_room(int why, const char *folder, uint64_t bytes, dcp_error *err) {
    const bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    return core_fail(err, full ? DCP_ERR_NO_SPACE : DCP_ERR_IO,
                     "%s: no room for the %" PRIu64 " bytes of a rank in %s: %s", OFFLOAD_KEY,
                     bytes, folder, strerror(why));
}

static int make_nameless(const char *folder, int *fd, dcp_error *err) {
    *fd = open_nameless(folder);
    if (*fd >= 0) return DCP_OK;
    return core_fail(err, program_path_is_wrong(errno) ? DCP_ERR_ARG : DCP_ERR_IO,
                     "%s: cannot make a file in %s: %s", OFFLOAD_KEY, folder, strerror(errno));
}

int state_check_offload(const char *folder, dcp_error *err) {
    int fd;
    const int status = make_nameless(folder, &fd, err);
    if (status == DCP_OK) close(fd);
    return status;
}

static int map_offload(offload *o, const char *folder, dcp_error *err) {
    const int status = make_nameless(folder, &o->fd, err);
    if (status != DCP_OK) return status;
    const int failed = posix_fallocate(o->fd, 0, (off_t)o->bytes);
    if (failed) return fail_room(failed, folder, o->bytes, err);
    void *at = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
    if (at == MAP_FAILED)
        return core_fail(err, DCP_ERR_IO, "%s: cannot map a file in %s: %s", OFFLOAD_KEY, folder,
                         strerror(errno));
    o->at = at;
    return DCP_OK;
}

static void offload_destroy(offload *o) {
    if (!o) return;
    if (o->at) munmap(o->at, o->bytes);
    if (o->fd >= 0) close(o->fd);
    free(o);
}

/* Makes zeroed memory of `bytes` bytes in a nameless file in `folder`. DCP_ERR_ARG: no files can be
 * made in the folder. DCP_ERR_NO_SPACE: the disk has too little room. */
static int offload_create(const char *folder, uint64_t bytes, offload **out, dcp_error *err) {
    const uint64_t page = page_bytes();
    offload *o = calloc(1, sizeof *o);
    if (!o) return core_fail_memory(err, sizeof *o);
    *o = (offload){.fd = -1, .bytes = (bytes + page) / page * page}; /* at least one page */
    const int status = map_offload(o, folder, err);
    if (status == DCP_OK)
        *out = o;
    else
        offload_destroy(o);
    return status;
}

/* Releases the process's pages of [from, from + bytes), and starts writing changed pages to the
 * disk. The content is preserved, and is read again on the next access. May be called from any
 * thread, even while other threads use the pages. */
static void offload_release(const offload *o, const void *from, uint64_t bytes) {
    const uint64_t page = page_bytes(), first = (uint64_t)((const char *)from - o->at);
    const uint64_t begin = first / page * page;
    const uint64_t end = (first + bytes + page - 1) / page * page;
    if (bytes == 0) return;
    madvise(o->at + begin, end - begin, MADV_DONTNEED); /* keeps the content of a shared mapping */
    sync_file_range(o->fd, (off_t)begin, (off_t)(end - begin), SYNC_FILE_RANGE_WRITE);
}

static int take_zeroed(train_state *s, void **out, uint64_t bytes, dcp_error *err) {
    *out = s->k->alloc(s->k, bytes);
    if (!*out) return core_fail_memory(err, bytes);
    s->k->zero(s->k, *out, bytes / sizeof(float));
    return DCP_OK;
}

static uint64_t slot_bytes(const train_state *s, size_t slot) {
    return s->layout->grad_elems * dcp_dtype_bytes(s->optimizer->slots[slot].dtype);
}

/* Rounds up to whole pages, so that each part begins on a page, as direct writes require. */
static uint64_t in_pages(uint64_t bytes) {
    const uint64_t page = page_bytes();
    return (bytes + page - 1) / page * page;
}

/* Returns the size of everything that is offloaded: the parameters, followed by each slot. */
static uint64_t offloaded_bytes(const train_state *s) {
    uint64_t bytes = in_pages(s->layout->param_elems * sizeof *s->params);
    for (size_t i = 0; i < s->optimizer->n_slots; i++) bytes += in_pages(slot_bytes(s, i));
    return bytes;
}

static void place_offloaded(train_state *s, void *memory) {
    char *at = memory;
    s->params = memory;
    at += in_pages(s->layout->param_elems * sizeof *s->params);
    for (size_t i = 0; i < s->optimizer->n_slots; i++) {
        s->slots[i] = at;
        at += in_pages(slot_bytes(s, i));
    }
}

/* Allocates everything that is offloaded, in one file. */
static int take_offloaded(train_state *s, const char *folder, dcp_error *err) {
    const int status = offload_create(folder, offloaded_bytes(s), &s->offloaded, err);
    if (status == DCP_OK) place_offloaded(s, s->offloaded->at);
    return status;
}

/* Allocates everything that is offloaded, in one block of the host's memory. */
static int take_apart(train_state *s, dcp_error *err) {
    const uint64_t bytes = offloaded_bytes(s);
    s->host_memory = s->k->alloc_host(s->k, bytes);
    if (!s->host_memory)
        return core_fail(
            err, DCP_ERR_NO_MEMORY,
            "fsdp.cpu_offload: out of memory: %" PRIu64 " page-locked bytes of the host", bytes);
    memset(s->host_memory, 0, bytes);
    place_offloaded(s, s->host_memory);
    return DCP_OK;
}

static int take_shards(train_state *s, dcp_error *err) {
    void *params = s->params;
    int status = DCP_OK;
    if (!s->borrows_params)
        status = take_zeroed(s, &params, s->layout->param_elems * sizeof *s->params, err);
    s->params = params;
    for (size_t i = 0; i < s->optimizer->n_slots && status == DCP_OK; i++)
        status = take_zeroed(s, &s->slots[i], slot_bytes(s, i), err);
    return status;
}

int state_create(const fsdp_layout *layout, const optim_type *optimizer, kernels *k,
                 const dcp_device *device, float *params, bool offloads, const char *offload_path,
                 train_state **out, dcp_error *err) {
    train_state *s = calloc(1, sizeof *s);
    void *grads = NULL;
    if (!s) return core_fail_memory(err, sizeof *s);
    s->layout = layout;
    s->optimizer = optimizer;
    s->k = k;
    s->device = device;
    s->params = params;
    s->borrows_params = params != NULL;
    s->since = calloc(layout->n_params + 1, sizeof *s->since);
    int status = s->since ? take_zeroed(s, &grads, layout->grad_elems * sizeof *s->grads, err)
                          : core_fail_memory(err, layout->n_params * sizeof *s->since);
    s->grads = grads;
    if (status == DCP_OK && !offloads)
        status = take_shards(s, err);
    else if (status == DCP_OK)
        status = offload_path ? take_offloaded(s, offload_path, err) : take_apart(s, err);
    if (status == DCP_OK)
        *out = s;
    else
        state_destroy(s);
    return status;
}

void *state_slot_at(const train_state *s, size_t slot, const fsdp_param *param) {
    return (char *)s->slots[slot] +
           param->grad_at * dcp_dtype_bytes(s->optimizer->slots[slot].dtype);
}

void state_release(const train_state *s, const fsdp_param *param) {
    if (!s->offloaded) return;
    offload_release(s->offloaded, s->params + param->param_at, param->elems * sizeof *s->params);
    for (size_t i = 0; i < s->optimizer->n_slots && !param->info.frozen; i++)
        offload_release(s->offloaded, state_slot_at(s, i, param),
                        param->elems * dcp_dtype_bytes(s->optimizer->slots[i].dtype));
}

static void release_memory(void *offloaded, const void *from, uint64_t bytes) {
    offload_release(offloaded, from, bytes);
}

void state_update(const train_state *s, const optim *o, double lr, double grad_scale) {
    optim_memory m = {.since = s->since,
                      .params = s->params,
                      .grads = s->grads,
                      .release = s->offloaded ? release_memory : NULL,
                      .ctx = s->offloaded};
    memcpy(m.slots, s->slots, sizeof m.slots);
    optim_step(o, &m, s->step + 1, lr, grad_scale);
}

void state_release_unit(void *state, size_t unit) {
    const train_state *s = state;
    const fsdp_unit *u = &s->layout->units[unit];
    const uint64_t bytes = (uint64_t)u->counts[s->layout->shard] * sizeof(float);
    if (s->offloaded) offload_release(s->offloaded, s->params + u->param_at, bytes);
}

void state_release_all(const train_state *s) {
    if (s->offloaded) offload_release(s->offloaded, s->offloaded->at, s->offloaded->bytes);
}

static void drop_files(train_state *s) {
    for (size_t i = 0; i < s->n_files; i++) {
        free((char *)s->files[i].tensor.path);
        free(s->files[i].data);
    }
    free(s->files);
    s->files = NULL;
    s->n_files = 0;
}

void state_destroy(train_state *s) {
    if (!s) return;
    drop_files(s);
    if (!s->offloaded && !s->host_memory) {
        for (size_t i = 0; i < s->optimizer->n_slots; i++) s->k->free(s->k, s->slots[i]);
        if (!s->borrows_params) s->k->free(s->k, s->params);
    }
    s->k->free_host(s->k, s->host_memory);
    s->k->free(s->k, s->grads);
    free(s->since);
    offload_destroy(s->offloaded);
    free(s);
}

/* Initializes n elements of a parameter, starting at its element `first`. */
static void randomize_piece(const train_state *s, const fsdp_param *param, uint64_t first,
                            uint64_t n) {
    float piece[PIECE_ELEMS];
    const float constant = param->info.init == MODEL_INIT_ONES ? 1.0f : 0.0f;
    if (param->info.init == MODEL_INIT_NORMAL)
        random_normal(piece, s->seed, random_stream(param->info.name),
                      param->box.start[0] * param->row_elems + first, n, param->info.std);
    else
        for (uint64_t i = 0; i < n; i++) piece[i] = constant;
    s->k->upload(s->k, s->params + param->param_at + first, piece, n * sizeof *piece);
}

void state_randomize_param(train_state *s, const fsdp_param *param) {
    for (uint64_t first = 0; first < param->elems; first += PIECE_ELEMS) {
        const uint64_t left = param->elems - first;
        randomize_piece(s, param, first, left < PIECE_ELEMS ? left : PIECE_ELEMS);
    }
    state_release(s, param);
}

void state_randomize(train_state *s) {
    for (size_t i = 0; i < s->layout->n_params; i++)
        state_randomize_param(s, &s->layout->params[i]);
}

int state_add(const train_state *s, dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
              void *data, dcp_error *err) {
    if (s->device && !s->host_memory)
        return dcp_state_add_device(state, tensor, box, s->device, data, err);
    return dcp_state_add(state, tensor, box, data, err);
}

/* A libdcp state that is being filled. */
typedef struct registration {
    const train_state *s;
    dcp_state *state;
    bool replicas; /* register whole slices, not only the part that this rank saves */
} registration;

/* Registers this rank's slice of a parameter or slot. If other ranks hold the same slice, this rank
 * registers only the part that it saves. */
static int add_slice(const registration *r, const char *section, const fsdp_param *param,
                     dcp_dtype dtype, void *slice, dcp_error *err) {
    char path[DCP_MAX_PATH];
    uint64_t first = 0;
    const dcp_box box = r->replicas ? param->box : fsdp_saved_box(r->s->layout, param, &first);
    snprintf(path, sizeof path, "/%s/%s", section, param->info.name);
    dcp_tensor tensor = fsdp_param_tensor(param, path);
    tensor.dtype = dtype;
    void *data = (char *)slice + first * dcp_dtype_bytes(dtype);
    return state_add(r->s, r->state, &tensor, &box, data, err);
}

static int add_model(const registration *r, dcp_error *err) {
    const train_state *s = r->s;
    int status = DCP_OK;
    for (size_t i = 0; i < s->layout->n_params && status == DCP_OK; i++) {
        const fsdp_param *param = &s->layout->params[i];
        status = add_slice(r, "model", param, DCP_F32, s->params + param->param_at, err);
    }
    return status;
}

static int add_slot(const registration *r, size_t slot, dcp_error *err) {
    const train_state *s = r->s;
    const optim_slot *info = &s->optimizer->slots[slot];
    char section[64];
    int status = DCP_OK;
    snprintf(section, sizeof section, "optimizer/%s", info->name);
    for (size_t i = 0; i < s->layout->n_params && status == DCP_OK; i++) {
        const fsdp_param *param = &s->layout->params[i];
        if (!param->info.frozen)
            status = add_slice(r, section, param, info->dtype, state_slot_at(s, slot, param), err);
    }
    return status;
}

static int add_files(const train_state *s, dcp_state *state, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < s->n_files && status == DCP_OK; i++)
        status = dcp_state_add(state, &s->files[i].tensor, &s->files[i].box, s->files[i].data, err);
    return status;
}

int state_register(const train_state *s, unsigned sections, dcp_state **out, dcp_error *err) {
    dcp_state *state;
    int status = dcp_state_create(&state, err);
    if (status != DCP_OK) return status;
    const registration r = {s, state, (sections & STATE_REPLICAS) != 0};
    if (sections & STATE_MODEL) status = add_model(&r, err);
    for (size_t i = 0; i < s->optimizer->n_slots && sections & STATE_OPTIMIZER; i++)
        if (status == DCP_OK) status = add_slot(&r, i, err);
    if (status == DCP_OK && sections & STATE_FILES) status = add_files(s, state, err);
    if (status == DCP_OK)
        *out = state;
    else
        dcp_state_destroy(state);
    return status;
}

static int take_file(train_state *s, const dcp_tensor *tensor, dcp_error *err) {
    carried_file *file = &s->files[s->n_files];
    *file = (carried_file){.tensor = *tensor,
                           .box = dcp_box_chunk(tensor, s->layout->rank, s->layout->world)};
    const uint64_t bytes = dcp_box_elems(&file->box, tensor->ndim) * dcp_dtype_bytes(tensor->dtype);
    file->tensor.path = strdup(tensor->path);
    file->data = malloc(bytes + 1);
    s->n_files++;
    return file->tensor.path && file->data ? DCP_OK : core_fail_memory(err, bytes);
}

int state_add_file(train_state *s, const char *path, uint64_t bytes, dcp_error *err) {
    const dcp_tensor tensor = {path, DCP_U8, 1, {bytes}};
    carried_file *files = realloc(s->files, (s->n_files + 1) * sizeof *files);
    if (!files) return core_fail_memory(err, (s->n_files + 1) * sizeof *files);
    s->files = files;
    return take_file(s, &tensor, err);
}

int state_adopt_files(train_state *s, const dcp_checkpoint *ckpt, dcp_error *err) {
    drop_files(s);
    s->files = calloc(dcp_checkpoint_tensors(ckpt) + 1, sizeof *s->files);
    if (!s->files) return core_fail_memory(err, sizeof *s->files);
    int status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && status == DCP_OK; i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (strncmp(tensor->path, "/files/", 7) == 0) status = take_file(s, tensor, err);
    }
    return status;
}
