/* dcp-inspect verify: every byte of a step. Damage goes to stdout, one line each. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli.h"
#include "dcp/checkpoint.h"
#include "inspect.h"
#include "locate.h"

typedef struct verification {
    cli_progress progress;
    uint64_t bytes;
    json_t *damage; /* NULL: as text */
    size_t damages;
} verification;

static void on_damage(void *ctx, const char *what) {
    verification *v = ctx;
    v->damages++;
    if (v->damage) {
        json_t *text = json_string(what);
        json_array_append_new(v->damage, text ? text : json_string("a name that is not UTF-8"));
        return;
    }
    cli_progress_end(&v->progress);
    printf("%s\n", what);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    verification *v = ctx;
    v->bytes = total;
    cli_progress_update(&v->progress, done, total);
}

/* The folder is there, so whatever is missing in it is damage. */
static int judge(verification *v, int status, const dcp_error *err) {
    if ((status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT) && v->damages == 0)
        on_damage(v, err->message);
    if (v->damages) return CLI_DIFFERS;
    return status ? cli_report(err) : CLI_DONE;
}

static void print_verdict(const char *step, const verification *v) {
    char text[32];
    if (v->damages)
        printf("%s: DAMAGED, %zu place%s\n", step, v->damages, v->damages == 1 ? "" : "s");
    else
        printf("%s: intact, %s checked\n", step, cli_bytes(v->bytes, text));
}

int inspect_verify(int argc, char **argv) {
    int json = 0;
    const cli_option options[] = {{"json", NULL, "print one JSON object", NULL, &json}, {0}};
    const cli_program program = {"dcp-inspect", "verify CKPT [--json]",
                                 "Reads every byte of a step and checks it. Exit status 1 where "
                                 "there is damage, each on a line.",
                                 options};
    char **args, step[PATH_MAX];
    int n, status = cli_parse(&program, argc, argv, 1, 1, &args, &n);
    if (status >= 0) return status;
    status = locate_step(args[0], step);
    if (status) return status;
    dcp_error err = {0};
    verification v = {.damage = json ? json_array() : NULL};
    dcp_verify_options verify = {.on_damage = on_damage, .on_progress = on_progress, .ctx = &v};
    cli_progress_start(&v.progress, "checking");
    status = judge(&v, dcp_verify(step, &verify, &err), &err);
    cli_progress_end(&v.progress);
    if (json)
        inspect_print_json(json_pack("{s:s, s:b, s:I, s:o}", "path", step, "intact", status == 0,
                                     "bytes", (json_int_t)v.bytes, "damage", v.damage));
    else if (status <= CLI_DIFFERS)
        print_verdict(step, &v);
    return status;
}
