/* What reading a configuration finds, all of it, so that a file is mended at once: what is wrong,
 * and how keys of DeepSpeed's were understood. */
#pragma once

#include <jansson.h>

#include <dcp/error.h>

typedef enum config_finding {
    CONFIG_WRONG,     /* "key: why, and what to do": the configuration is refused */
    CONFIG_TAKEN,     /* "their key as our key" */
    CONFIG_AUTO,      /* "key value": was "auto", and is this */
    CONFIG_LEFT_OUT,  /* "key value (DeepSpeed: value)": a default that differs */
    CONFIG_GIVES_WAY, /* "their key value (our key is value)": the command line has ours */
    CONFIG_REPEATED,  /* "key=value": another one of the command line comes after it */
    CONFIG_NO_EFFECT, /* a key */
    CONFIG_IDLE,      /* "key (other key is value)": without effect where that has this value */
    CONFIG_FINDINGS,
} config_finding;

/* {0}: nothing yet. */
typedef struct config_findings {
    json_t *lists[CONFIG_FINDINGS]; /* of strings; NULL: empty */
} config_findings;

/* Adds to a list; what is in it already is not added again. */
void config_findings_add(config_findings *f, config_finding kind, const char *fmt, ...)
    DCP_PRINTF(3, 4);
/* Whether the text is in a list. */
int config_findings_has(const config_findings *f, config_finding kind, const char *text);
size_t config_findings_count(const config_findings *f, config_finding kind);
void config_findings_clear(config_findings *f);

/* DCP_ERR_ARG where something is wrong, else DCP_OK. The message begins with the source, a file or
 * the command line. It has what is wrong where that is one thing; else it counts the things, and
 * *lines are they, each indented and with a newline before it. Freed with free(). */
int config_findings_judge(const config_findings *f, const char *source, char **lines,
                          dcp_error *err);

/* How keys were understood: lines that begin with the source, with a newline between them; NULL:
 * there is nothing to tell. Freed with free(). */
char *config_findings_notes(const config_findings *f, const char *source);
