/* Boxes of whole rows are ranges of a file's bytes, so what a save asks for is read straight from
 * the file into the save's buffer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/launch.h"
#include "import/import.h"
#include "programs/program.h"

typedef struct range {
    dcp_st_reader *reader; /* NULL: a kept file */
    const char *name;
    int fd;         /* of a kept file */
    uint64_t first; /* byte of the tensor or file that the box begins with */
} range;

struct import_source {
    dcp_state *state;
    range *ranges;
    size_t n;
};

static int fail(dcp_error *err, int status, const char *what, const char *name) {
    if (!err) return status;
    *err = (dcp_error){.status = status, .rank = -1};
    snprintf(err->message, sizeof err->message, "%s%.200s", what, name);
    return status;
}

static int read_file(const range *r, uint64_t offset, uint64_t bytes, char *out, dcp_error *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(r->fd, out + done, bytes - done, (off_t)(r->first + offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(err, DCP_ERR_IO, "cannot read ", r->name);
        if (got == 0) return fail(err, DCP_ERR_CORRUPT, "became shorter: ", r->name);
        done += (uint64_t)got;
    }
    return DCP_OK;
}

static int read_range(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const range *r = ctx;
    if (launch_is_stopped())
        return fail(err, DCP_ERR_IO, "stopped by a signal: nothing is published", "");
    if (!r->reader) return read_file(r, offset, bytes, out, err);
    return dcp_st_read(r->reader, r->name, r->first + offset, bytes, out, err);
}

/* `r` is the whole tensor's or file's range; it becomes this rank's part. */
static int add(import_source *s, range r, const char *section, dcp_tensor tensor, int rank,
               int size) {
    dcp_error err = {0};
    char path[DCP_MAX_PATH + 64];
    snprintf(path, sizeof path, "/%s/%s", section, r.name);
    tensor.path = path;
    dcp_box box = dcp_box_chunk(&tensor, rank, size), row = dcp_box_whole(&tensor);
    if (tensor.ndim) {
        row.count[0] = 1;
        r.first = box.start[0] * dcp_box_elems(&row, tensor.ndim) * dcp_dtype_bytes(tensor.dtype);
    }
    s->ranges[s->n] = r;
    if (dcp_state_add_source(s->state, &tensor, &box, read_range, &s->ranges[s->n], -1, &err))
        return program_report(&err);
    s->n++;
    return 0;
}

static int add_all(import_source *s, dcp_st_reader *reader, const import_files *files, int rank,
                   int size) {
    dcp_error err = {0};
    int status = dcp_state_create(&s->state, &err) ? program_report(&err) : 0;
    for (size_t i = 0; status == 0 && i < dcp_st_tensors(reader); i++) {
        const dcp_tensor *tensor = dcp_st_tensor(reader, i);
        status = add(s, (range){reader, tensor->path, -1, 0}, "model", *tensor, rank, size);
    }
    for (size_t i = 0; status == 0 && i < files->n; i++) {
        const import_file *f = &files->list[i];
        dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .shape = {f->bytes}};
        status = add(s, (range){NULL, f->name, f->fd, 0}, "files", tensor, rank, size);
    }
    return status;
}

int import_source_make(dcp_st_reader *reader, const import_files *files, int rank, int size,
                       import_source **out) {
    import_source *s = calloc(1, sizeof *s);
    if (s) s->ranges = calloc(dcp_st_tensors(reader) + files->n + 1, sizeof *s->ranges);
    if (!s || !s->ranges) {
        free(s);
        return program_fail(PROGRAM_FAILED, "out of memory");
    }
    int status = add_all(s, reader, files, rank, size);
    if (status)
        import_source_free(s);
    else
        *out = s;
    return status;
}

const dcp_state *import_source_state(const import_source *source) { return source->state; }

void import_source_free(import_source *source) {
    if (!source) return;
    dcp_state_destroy(source->state);
    free(source->ranges);
    free(source);
}
