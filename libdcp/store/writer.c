#include "store/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/entropy.h"

int store_writer_make_id(char id[STORE_WRITER_ID], dcp_error *err) {
    uint64_t bits;
    int status = core_entropy(&bits, err);
    if (!status) snprintf(id, STORE_WRITER_ID, "%016" PRIx64, bits);
    return status;
}

void store_writer_describe(const char *id, store_writer *out) {
    *out = (store_writer){.has_ended = 0};
    if (gethostname(out->host, sizeof out->host - 1) != 0 || !out->host[0])
        strcpy(out->host, "unknown");
    comm_process_find(&out->process);
    snprintf(out->id, sizeof out->id, "%s", id);
}

int store_writer_print(const store_writer *w, char text[STORE_WRITER_TEXT]) {
    const comm_process *p = &w->process;
    return snprintf(text, STORE_WRITER_TEXT,
                    "%s %" PRId64 " %" PRIu64 " %016" PRIx64 " %" PRIu64 " %s %s %s %" PRId64 "\n",
                    w->host, p->pid, p->start, p->kernel, p->name_space, w->id,
                    w->lockless    ? "lockless"
                    : w->contested ? "contested"
                                   : "sole",
                    w->has_ended ? "ended" : "held", p->pid);
}

int store_writer_parse(const char *text, store_writer *out) {
    char contested[16] = "", state[16] = "";
    int64_t again = -1;
    *out = (store_writer){.has_ended = 0};
    comm_process *p = &out->process;
    int n = sscanf(text,
                   "%255s %" SCNd64 " %" SCNu64 " %" SCNx64 " %" SCNu64 " %16s %15s %15s %" SCNd64,
                   out->host, &p->pid, &p->start, &p->kernel, &p->name_space, out->id, contested,
                   state, &again);
    out->lockless = strcmp(contested, "lockless") == 0;
    out->contested = out->lockless || strcmp(contested, "contested") == 0;
    out->has_ended = strcmp(state, "ended") == 0;
    return n == 9 && again == p->pid && (out->has_ended || strcmp(state, "held") == 0);
}

store_writer_fate store_writer_find(const store_writer *w) {
    comm_process own;
    if (w->has_ended) return STORE_WRITER_GONE;
    comm_process_find(&own);
    if (!comm_process_can_tell(&own, &w->process)) return STORE_WRITER_UNKNOWN;
    return comm_process_has_ended(&own, &w->process) ? STORE_WRITER_GONE : STORE_WRITER_RUNS;
}

int store_writer_is_self(const store_writer *w, const store_writer *self) {
    return comm_process_can_tell(&self->process, &w->process) &&
           w->process.pid == self->process.pid && w->process.start == self->process.start;
}
