#include "config/findings.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

bool config_findings_has(const config_findings *f, config_finding kind, const char *text) {
    const json_t *list = f->lists[kind];
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return true;
    return false;
}

void config_findings_add(config_findings *f, config_finding kind, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    json_t *text = json_vsprintf(fmt, args);
    va_end(args);
    if (!f->lists[kind]) f->lists[kind] = json_array();
    if (!text) text = json_string("?");
    if (text && !config_findings_has(f, kind, json_string_value(text)))
        json_array_append(f->lists[kind], text);
    json_decref(text);
}

size_t config_findings_count(const config_findings *f, config_finding kind) {
    return json_array_size(f->lists[kind]);
}

void config_findings_clear(config_findings *f) {
    for (int kind = 0; kind < CONFIG_FINDINGS; kind++) json_decref(f->lists[kind]);
    *f = (config_findings){0};
}

/* Joins the texts of a list, each preceded by `before`. The first `skip` characters of the result
 * are omitted. Free the result with free(). */
static char *join(const json_t *list, const char *before, size_t skip) {
    size_t bytes = 1;
    for (size_t i = 0; i < json_array_size(list); i++)
        bytes += strlen(before) + json_string_length(json_array_get(list, i));
    char *text = malloc(bytes), *at = text;
    if (!text) return NULL;
    *text = '\0';
    for (size_t i = 0; i < json_array_size(list); i++) {
        at = stpcpy(at, before + (i ? 0 : skip));
        at = stpcpy(at, json_string_value(json_array_get(list, i)));
    }
    return text;
}

int config_findings_judge(const config_findings *f, const char *source, char **lines,
                          dcp_error *err) {
    const json_t *wrong = f->lists[CONFIG_WRONG];
    const size_t n = json_array_size(wrong);
    if (n == 0) return DCP_OK;
    if (n == 1)
        return core_fail(err, DCP_ERR_ARG, "%s: %s", source,
                         json_string_value(json_array_get(wrong, 0)));
    *lines = join(wrong, "\n    ", 0);
    return core_fail(err, DCP_ERR_ARG,
                     "%s: %zu keys are wrong or have no counterpart here:", source, n);
}

static const struct {
    config_finding kind;
    const char *lead;
} sentences[] = {
    {CONFIG_TRANSLATED, "translated to dcp-train's keys: "},
    {CONFIG_AUTO, "\"auto\" is filled in by dcp-train's defaults: "},
    {CONFIG_LEFT_OUT, "left out, so dcp-train's defaults apply: "},
    {CONFIG_OVERRIDDEN, "ignored, because the command line takes precedence over the file: "},
    {CONFIG_REPEATED, "ignored, because the command line sets the key again: "},
    {CONFIG_NO_EFFECT, "DeepSpeed's keys without effect here: "},
    {CONFIG_IDLE, "without effect because of other keys: "},
};

char *config_findings_notes(const config_findings *f, const char *source) {
    json_t *lines = json_array();
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
        if (!config_findings_count(f, sentences[i].kind)) continue;
        char *list = join(f->lists[sentences[i].kind], ", ", 2);
        if (list)
            json_array_append_new(lines, json_sprintf("%s: %s%s", source, sentences[i].lead, list));
        free(list);
    }
    char *text = json_array_size(lines) ? join(lines, "\n", 1) : NULL;
    json_decref(lines);
    return text;
}
