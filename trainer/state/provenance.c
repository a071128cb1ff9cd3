/* Naming the processor and the kernels, and noticing a change of either. */
#include "state/provenance.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/say.h"
#include <dcp/checkpoint.h>

/* "model name" of /proc/cpuinfo, where there is one. */
static void processor_name(char *out, size_t size) {
    snprintf(out, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
        memmove(out, out + strspn(out, " "), strlen(out + strspn(out, " ")) + 1);
        break;
    }
    fclose(file);
}

char *state_provenance_members(const char *kernels) {
    char processor[256];
    processor_name(processor, sizeof processor);
    json_t *o = json_pack("{ssss}", "kernels", kernels, "processor", processor);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void compare_member(const json_t *about, const char *key, const char *here) {
    const char *there = json_string_value(json_object_get(about, key));
    if (!there)
        ranks_warn(0,
                   "about.json does not name its %s: cannot tell whether it computes the same "
                   "bits here",
                   key);
    else if (strcmp(there, here) != 0)
        ranks_warn(0,
                   "the checkpoint was computed with %s \"%s\", here it is \"%s\": results may "
                   "differ in their last digits",
                   key, there, here);
}

void state_provenance_compare_kernels(const char *step_path, const char *kernels) {
    char processor[256], *text;
    const int status = dcp_about_read(step_path, &text, NULL);
    if (status != DCP_OK) {
        ranks_warn(0,
                   "%s/about.json is %s: cannot tell whether this processor computes the same bits",
                   step_path, status == DCP_ERR_NOT_FOUND ? "missing" : "damaged");
        return;
    }
    json_t *about = json_loads(text, 0, NULL);
    processor_name(processor, sizeof processor);
    compare_member(about, "kernels", kernels);
    compare_member(about, "processor", processor);
    json_decref(about);
    free(text);
}
