/* Adding many boxes to a state at once. The state does not change until everything has been checked
 * and all memory is allocated.
 *
 * Adding boxes one at a time spends most of its time finding their paths in a tree. Here the paths
 * are sorted instead, so boxes of one path become neighbours. The sort skips the paths' common
 * prefix and compares words of eight bytes. */
#include <search.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/state_dict.h"
#include "core/system.h"

enum { BLOCK = 256 << 10, LARGE_BLOCK = 4 << 20, HUGE_PAGE = 2 << 20 }; /* sizes in bytes */

typedef struct path_place {
    /* eight bytes of the path as a big-endian number; after sorting: 1 if the path equals the
     * previous one, otherwise 0 */
    uint64_t word;
    const char *path;
    uint32_t index, length;
} path_place;

/* A tensor that the state already had and that gets new boxes. */
typedef struct more_of {
    state_tensor *tensor;
    state_box *boxes; /* the old and the new ones */
    size_t n_boxes;
} more_of;

typedef struct many_boxes {
    dcp_state *state;
    size_t n;
    const dcp_tensor *tensors;
    const dcp_box *boxes; /* NULL: all boxes are whole tensors */
    void *const *data;
    path_place *places;   /* sorted by path, then by index; room for n more */
    unsigned char *empty; /* for each box, whether it is empty */
    /* a path whose first folder_length bytes, up to and including a '/', name a folder that is
     * known not to be a tensor */
    const char *folder;
    size_t folder_length;
    state_tensor **fresh;  /* new tensors, sorted by path */
    state_tensor **merged; /* `fresh` merged with state->sorted; NULL: `fresh` goes into the tree */
    more_of *more;
    state_block *blocks, *last; /* contain the new tensors */
    char *memory;               /* what is left of the first block: `left` bytes */
    size_t left;
    size_t n_fresh, n_merged, n_more;
} many_boxes;

static void fill_box(const many_boxes *m, size_t i, state_box *box) {
    *box = (state_box){.data = m->data ? m->data[i] : NULL, .rank = -1};
    box->box = m->boxes ? m->boxes[i] : dcp_box_whole(&m->tensors[i]);
}

static int check_boxes(many_boxes *m, dcp_error *err) {
    state_box box = {.rank = -1};
    for (size_t i = 0; i < m->n; i++) {
        uint64_t bytes;
        bool empty;
        if (i + PREFETCH_DISTANCE < m->n) core_prefetch(m->tensors[i + PREFETCH_DISTANCE].path, 1);
        box.data = m->data ? m->data[i] : NULL;
        int status = core_state_check(&m->tensors[i], m->boxes ? &m->boxes[i] : NULL, &box, &bytes,
                                      &empty, err);
        if (status && err) core_fail_again(err, status, err, "tensors[%zu]: %s", i, err->message);
        if (status) return status;
        const char *path = m->tensors[i].path;
        m->empty[i] = (unsigned char)empty;
        m->places[i] = (path_place){0, path, (uint32_t)i, (uint32_t)strlen(path)};
    }
    return DCP_OK;
}

/* Returns the path's eight bytes at offset `at` as a big-endian number, with zeros after the path's
 * end. */
static uint64_t word_of(const path_place *p, size_t at) {
    uint64_t word = 0;
    if (at + sizeof word <= p->length)
        memcpy(&word, p->path + at, sizeof word);
    else if (at < p->length)
        memcpy(&word, p->path + at, p->length - at);
    return __builtin_bswap64(word);
}

enum { FEW = 32 }; /* up to this number, insertion sort is used */

static void sort_few(path_place *places, size_t n) {
    for (size_t i = 1, k; i < n; i++) {
        const path_place p = places[i];
        for (k = i; k && places[k - 1].word > p.word; k--) places[k] = places[k - 1];
        places[k] = p;
    }
}

/* Sorts by word. A stable radix sort, from the lowest byte to the highest. */
static void sort_words(path_place *places, path_place *spare, size_t n) {
    path_place *from = places, *to = spare;
    for (int shift = 0; shift < 64; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < n; i++) at[(from[i].word >> shift & 0xff) + 1]++;
        if (at[(from[0].word >> shift & 0xff) + 1] == n) continue;
        for (int b = 0; b < 256; b++) at[b + 1] += at[b];
        for (size_t i = 0; i < n; i++) to[at[from[i].word >> shift & 0xff]++] = from[i];
        path_place *other = from;
        from = to;
        to = other;
    }
    if (from != places) memcpy(places, from, n * sizeof *places);
}

/* Returns the length of the paths' common prefix; the caller knows that it is at least `at`. */
static size_t common_length(const path_place *places, size_t n, size_t at) {
    size_t end = places[0].length;
    for (size_t i = 1; i < n; i++) {
        size_t k = at;
        while (k + 8 <= end && word_of(&places[0], k) == word_of(&places[i], k)) k += 8;
        while (k < end && places[0].path[k] == places[i].path[k]) k++;
        end = k;
    }
    return end;
}

/* Sorts places whose paths are equal in their first `at` bytes; `spare` has room for n places. */
static void sort_places(path_place *places, path_place *spare, size_t n, size_t at) {
    bool is_sorted = true;
    at = common_length(places, n, at);
    for (size_t i = 0; i < n; i++) {
        places[i].word = word_of(&places[i], at);
        if (i && is_sorted) is_sorted = places[i - 1].word <= places[i].word;
    }
    if (!is_sorted && n <= FEW)
        sort_few(places, n);
    else if (!is_sorted)
        sort_words(places, spare, n);
    for (size_t i = 0, end; i < n; i = end) {
        const uint64_t word = places[i].word;
        for (end = i + 1; end < n && places[end].word == word; end++) places[end].word = 1;
        places[i].word = 0;
        if (end == i + 1 || !(word & 0xff)) continue; /* single, or equal paths that end here */
        sort_places(places + i, spare, end - i, at + 8);
    }
}

/* Returns true if the first `length` bytes of `path` are one of the paths before `place`. */
static bool is_listed(const many_boxes *m, size_t place, const char *path, size_t length) {
    size_t low = 0, high = place;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const char *other = m->places[middle].path;
        const int side = strncmp(path, other, length);
        if (!side && !other[length]) return true;
        if (side > 0)
            low = middle + 1;
        else
            high = middle; /* the folder's contents come after it */
    }
    return false;
}

/* Checks that no folder that contains the path is a tensor that is added in the same call. */
static int check_listed_folders(many_boxes *m, size_t place, dcp_error *err) {
    const char *path = m->places[place].path;
    if (m->folder && !strncmp(m->folder, path, m->folder_length) &&
        !strchr(path + m->folder_length, '/'))
        return DCP_OK;
    const char *end = strrchr(path, '/');
    for (const char *c = strchr(path + 1, '/'); c != end;) {
        c = strchr(c + 1, '/');
        const size_t length = (size_t)(c - path);
        if (!is_listed(m, place, path, length)) continue;
        return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                          "tensor %s: %.*s is a tensor, not a folder", path,
                                          (int)length, path),
                                path, err);
    }
    m->folder = path;
    m->folder_length = (size_t)(end - path) + 1;
    return DCP_OK;
}

/* Allocates at least *bytes, and sets *bytes to the size of the block. Uses huge pages if there are
 * many tensors: the kernel would need more time to provide the same memory in small pages than
 * dcp_state_add_many needs for everything else. */
static state_block *make_block(const many_boxes *m, size_t *bytes) {
    const bool is_large = m->n * sizeof(state_entry) >= LARGE_BLOCK;
    const size_t least = is_large ? LARGE_BLOCK : BLOCK;
    if (*bytes < least) *bytes = least;
    if (!is_large || *bytes > least) return malloc(*bytes);
    void *block = aligned_alloc(HUGE_PAGE, *bytes);
    if (block) madvise(block, *bytes, MADV_HUGEPAGE);
    return block;
}

/* Returns memory from a block; NULL: memory is short. */
static void *take_memory(many_boxes *m, size_t bytes) {
    bytes = (bytes + 7) / 8 * 8;
    if (bytes > m->left) {
        size_t all = sizeof(state_block) + bytes;
        state_block *block = make_block(m, &all);
        if (!block) return NULL;
        block->next = m->blocks;
        m->blocks = block;
        if (!m->last) m->last = block;
        m->left = all - sizeof *block;
        m->memory = block->memory;
    }
    void *memory = m->memory;
    m->memory += bytes;
    m->left -= bytes;
    return memory;
}

static int make_tensor(many_boxes *m, size_t place, size_t boxes, state_tensor **out,
                       dcp_error *err) {
    const path_place *p = &m->places[place];
    int status = check_listed_folders(m, place, err);
    if (!status && m->state->n) status = core_state_check_folders(m->state, p->path, err);
    if (status) return status;
    const size_t bytes = core_state_tensor_bytes(p->length);
    state_box *apart = boxes > 1 ? core_array(boxes, sizeof *apart) : NULL;
    void *memory = take_memory(m, bytes);
    if (!memory || (boxes > 1 && !apart)) {
        free(apart);
        return core_fail_memory(err, boxes * sizeof *apart + bytes);
    }
    state_tensor *t = core_state_init_tensor(memory, &m->tensors[p->index], p->length);
    ((state_entry *)t)->is_part = true;
    if (apart) t->boxes = apart;
    m->fresh[m->n_fresh++] = *out = t;
    return DCP_OK;
}

/* Allocates memory for the old and new boxes of an existing tensor, and copies the old ones. */
static int make_more(many_boxes *m, state_tensor *t, size_t boxes, more_of **out, dcp_error *err) {
    const size_t n = t->n_boxes + boxes;
    state_box *all = core_array(n + 1, sizeof *all);
    if (!all) return core_fail_memory(err, n * sizeof *all);
    memcpy(all, t->boxes, t->n_boxes * sizeof *all);
    m->more[m->n_more] = (more_of){t, all, t->n_boxes};
    *out = &m->more[m->n_more++];
    return DCP_OK;
}

/* Adds the boxes of the places `from` to `end` - 1, which have the same path. */
static int add_group(many_boxes *m, size_t from, size_t end, dcp_error *err) {
    const path_place *p = &m->places[from];
    state_tensor *t = m->state->n ? core_state_find(m->state, p->path) : NULL;
    const dcp_tensor *as = t ? &t->tensor : &m->tensors[p->index];
    size_t boxes = 0;
    for (size_t k = 0; k < end - from; k++) {
        const dcp_tensor *tensor = &m->tensors[p[k].index];
        int status = tensor == as ? DCP_OK : core_state_check_same(tensor, as, err);
        if (status) return status;
        boxes += !m->empty[p[k].index];
    }
    more_of *more = NULL;
    int status = t ? make_more(m, t, boxes, &more, err) : make_tensor(m, from, boxes, &t, err);
    if (status) return status;
    state_box *into = more ? more->boxes : t->boxes;
    size_t *n = more ? &more->n_boxes : &t->n_boxes;
    for (size_t k = 0; k < end - from; k++)
        if (!m->empty[p[k].index]) fill_box(m, p[k].index, &into[(*n)++]);
    return DCP_OK;
}

/* Prefetches the data that the walk over the places will soon need, since the caller's arrays may
 * be in a different order. */
static void prefetch_box(const many_boxes *m, size_t place) {
    if (place >= m->n) return;
    const size_t i = m->places[place].index;
    core_prefetch(&m->tensors[i], sizeof *m->tensors);
    if (m->boxes) core_prefetch(&m->boxes[i], sizeof *m->boxes);
    core_prefetch(m->places[place].path, 1);
}

static int add_groups(many_boxes *m, dcp_error *err) {
    int status = DCP_OK;
    for (size_t from = 0, end; from < m->n && !status; from = end) {
        for (end = from + 1; end < m->n && m->places[end].word; end++) continue;
        prefetch_box(m, from + PREFETCH_DISTANCE);
        status = add_group(m, from, end, err);
    }
    return status;
}

/* Puts the new tensors into the tree. Used if the state already has many more tensors than are
 * added: merging lists would copy all of them. */
static bool put_into_tree(many_boxes *m) {
    for (size_t i = 0; i < m->n_fresh; i++) {
        if (tsearch(m->fresh[i], &m->state->by_path, core_state_compare)) continue;
        while (i--) tdelete(m->fresh[i], &m->state->by_path, core_state_compare);
        return false;
    }
    return true;
}

static bool merge_into_list(many_boxes *m) {
    const size_t n = m->state->n_sorted;
    m->merged = core_array(n + m->n_fresh, sizeof *m->merged);
    if (!m->merged) return false;
    core_state_merge(m->state->sorted, n, m->fresh, m->n_fresh, m->merged);
    m->n_merged = n + m->n_fresh;
    return true;
}

static int reserve_tensors(many_boxes *m, dcp_error *err) {
    bool done = core_state_reserve(m->state, m->n_fresh);
    if (done && m->n_fresh)
        done = m->n_fresh < m->state->n / 8 ? put_into_tree(m) : merge_into_list(m);
    return done ? DCP_OK : core_fail_memory(err, m->n_fresh * sizeof *m->fresh);
}

/* Cannot fail. */
static void commit(many_boxes *m) {
    dcp_state *state = m->state;
    for (size_t k = 0; k < m->n_more; k++) {
        state_tensor *t = m->more[k].tensor;
        if (t->boxes != &((state_entry *)t)->box) free(t->boxes);
        t->boxes = m->more[k].boxes;
        t->n_boxes = m->more[k].n_boxes;
    }
    m->n_more = 0;
    if (m->n_fresh) memcpy(state->tensors + state->n, m->fresh, m->n_fresh * sizeof *m->fresh);
    state->n += m->n_fresh;
    m->n_fresh = 0;
    if (m->last) m->last->next = state->blocks;
    if (m->last) state->blocks = m->blocks;
    m->blocks = NULL;
    if (!m->merged) return;
    free(state->sorted);
    state->sorted = m->merged;
    state->n_sorted = m->n_merged;
    m->merged = NULL;
}

static int add_all(many_boxes *m, dcp_error *err) {
    int status = check_boxes(m, err);
    if (status) return status;
    sort_places(m->places, m->places + m->n, m->n, 0);
    status = add_groups(m, err);
    if (!status) status = reserve_tensors(m, err);
    if (!status) commit(m);
    return status;
}

static int allocate(many_boxes *m, dcp_error *err) {
    m->places = core_array(2 * m->n, sizeof *m->places);
    m->empty = malloc(m->n);
    m->fresh = core_array(m->n, sizeof *m->fresh);
    m->more = core_array(m->n, sizeof *m->more);
    if (m->places && m->empty && m->fresh && m->more) return DCP_OK;
    return core_fail_memory(err, m->n * (sizeof *m->places + sizeof *m->more));
}

static void release(many_boxes *m) {
    for (size_t i = 0; i < m->n_fresh; i++) core_state_free_tensor(m->fresh[i]);
    for (size_t k = 0; k < m->n_more; k++) free(m->more[k].boxes);
    core_state_free_blocks(m->blocks);
    free(m->merged);
    free(m->more);
    free(m->fresh);
    free(m->empty);
    free(m->places);
}

int dcp_state_add_many(dcp_state *state, size_t n, const dcp_tensor *tensors, const dcp_box *boxes,
                       void *const *data, dcp_error *err) {
    if (!state || (n && !tensors))
        return core_fail(err, DCP_ERR_ARG, "dcp_state_add_many: a state and tensors are needed");
    if (!n) return DCP_OK;
    if (n > UINT32_MAX)
        return core_fail(
            err, DCP_ERR_ARG,
            "dcp_state_add_many: %zu boxes are too many: at most %u can be added at once", n,
            UINT32_MAX);
    many_boxes m = {.state = state, .n = n, .tensors = tensors, .boxes = boxes, .data = data};
    int status = allocate(&m, err);
    if (!status) status = add_all(&m, err);
    if (!status) state->changed = core_clock_now();
    release(&m);
    return status;
}
