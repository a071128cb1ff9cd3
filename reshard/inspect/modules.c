/* Tensors come sorted, so those of a module follow each other: a stack of the modules that the last
 * tensor was in is enough. */
#include "inspect/modules.h"

#include <stdlib.h>
#include <string.h>

const char *inspect_modules_kind(const char *path, size_t *length) {
    static const char optimizer[] = "/optimizer/";
    const char *start = path + 1;
    if (strncmp(path, optimizer, sizeof optimizer - 1) == 0 &&
        strchr(path + sizeof optimizer - 1, '/'))
        start = path + sizeof optimizer - 1;
    *length = strcspn(start, "/");
    return start;
}

static int push(inspect_modules *m, const char *path, size_t own, size_t length) {
    if ((m->n & (m->n - 1)) == 0) { /* 0 or a power of two: the room is used up */
        inspect_module *grown = realloc(m->list, (m->n ? 2 * m->n : 1) * sizeof *grown);
        if (!grown) return -1;
        m->list = grown;
    }
    m->open[m->depth] = m->n;
    m->list[m->n++] =
        (inspect_module){.path = path, .length = length, .own = own, .depth = ++m->depth};
    return 0;
}

/* How many of the open modules the path is in, `from` being where its first part begins. */
static unsigned shared(const inspect_modules *m, const char *path) {
    unsigned depth = 0;
    while (depth < m->depth) {
        const inspect_module *open = &m->list[m->open[depth]];
        if (strncmp(open->path, path, open->length) || !strchr("./", path[open->length])) break;
        depth++;
    }
    return depth;
}

int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor) {
    const char *path = tensor->path;
    size_t length;
    size_t at = (size_t)(inspect_modules_kind(path, &length) - path) + length + 1;
    m->depth = shared(m, path);
    if (m->depth) at = m->list[m->open[m->depth - 1]].length + 1;
    while (m->depth < m->most) {
        size_t end = at + strcspn(path + at, "./");
        if (!path[end] && m->depth) break; /* the tensor's own name */
        if (push(m, path, at, end)) return -1;
        if (!path[end]) break;
        at = end + 1;
    }
    for (unsigned d = 0; d < m->depth; d++) {
        inspect_module *in = &m->list[m->open[d]];
        in->tensors++;
        in->bytes += dcp_tensor_bytes(tensor);
        in->elems += dcp_tensor_bytes(tensor) / dcp_dtype_bytes(tensor->dtype);
    }
    return 0;
}

void inspect_modules_free(inspect_modules *m) {
    free(m->list);
    *m = (inspect_modules){0};
}
