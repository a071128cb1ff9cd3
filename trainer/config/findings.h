/* Collects what is found while a configuration is read: all mistakes, so that a user can correct
 * them all together, and how DeepSpeed's keys were understood. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include <dcp/error.h>

typedef enum config_finding {
    CONFIG_WRONG,      /* "key: reason, and remedy": the configuration is refused */
    CONFIG_TRANSLATED, /* "their key as our key" */
    CONFIG_AUTO,       /* "key value": the value was "auto" and is now the default */
    CONFIG_LEFT_OUT, /* "key value (DeepSpeed's is value)": the file omits the key, and the defaults
                        differ */
    CONFIG_OVERRIDDEN, /* "their key value (our key is value)": DeepSpeed's key is ignored, because
                         the command line sets dcp-train's */
    CONFIG_REPEATED,   /* "key=value": ignored, because the command line sets the key again later */
    CONFIG_NO_EFFECT,  /* a key */
    CONFIG_IDLE, /* "key (other key is value)": has no effect while the other key has this value */
    CONFIG_FINDINGS,
} config_finding;

/* {0}: empty. */
typedef struct config_findings {
    json_t *lists[CONFIG_FINDINGS]; /* of strings; NULL: empty */
} config_findings;

/* Adds a text to a list unless the list contains it. */
void config_findings_add(config_findings *f, config_finding kind, const char *fmt, ...)
    DCP_PRINTF(3, 4);
/* Returns true if the list contains the text. */
bool config_findings_has(const config_findings *f, config_finding kind, const char *text);
size_t config_findings_count(const config_findings *f, config_finding kind);
void config_findings_clear(config_findings *f);

/* Returns DCP_ERR_ARG if there are mistakes, otherwise DCP_OK. The message begins with the source,
 * a file or the command line. It contains the mistake if there is only one; otherwise it contains
 * the number of mistakes, and *lines lists them, each indented and after a newline. Free *lines
 * with free(). */
int config_findings_judge(const config_findings *f, const char *source, char **lines,
                          dcp_error *err);

/* Returns lines that report how keys were understood, each beginning with the source; NULL if there
 * is nothing to report. Free the text with free(). */
char *config_findings_notes(const config_findings *f, const char *source);
