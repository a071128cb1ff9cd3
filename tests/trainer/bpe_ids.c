/* What trainer/text makes of a text: token ids, or the bytes that they stand for.
 *   bpe_ids TOKENIZER.json [--special] <TEXT >IDS     ids, a line for each NUL-ended text of stdin
 *   bpe_ids TOKENIZER.json --bytes <TEXT >TEXT        the bytes of those ids
 *   bpe_ids TOKENIZER.json --time N <TEXT             bytes per second of encoding it N times */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/bpe.h"

static char *read_all(FILE *file, size_t *bytes) {
    size_t room = 1 << 16, n;
    char *text = malloc(room);
    *bytes = 0;
    while (text && (n = fread(text + *bytes, 1, room - *bytes, file)) > 0)
        if ((*bytes += n) == room) text = realloc(text, room *= 2);
    return text;
}

static int fail(const dcp_error *err) {
    fprintf(stderr, "bpe_ids: %s\n", err->message);
    return 1;
}

static int print_bytes(const text_bpe *t, const int32_t *ids, size_t n, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t length;
        int special;
        if (text_bpe_bytes(t, ids[i], &bytes, &length, &special, err)) return fail(err);
        fwrite(bytes, 1, length, stdout);
    }
    return 0;
}

/* One text, up to its NUL or the end. */
static int print(const text_bpe *t, const char *text, size_t bytes, const char *how) {
    dcp_error err;
    int32_t *ids;
    size_t n;
    int status = text_bpe_encode(t, text, bytes, !strcmp(how, "--special"), &ids, &n, &err);
    if (status) return fail(&err);
    if (!strcmp(how, "--bytes"))
        status = print_bytes(t, ids, n, &err);
    else
        for (size_t i = 0; i < n; i++) printf(i ? " %d" : "%d", ids[i]);
    putchar(strcmp(how, "--bytes") ? '\n' : '\0');
    free(ids);
    return status;
}

static int print_speed(const text_bpe *t, const char *text, size_t bytes, int times) {
    struct timespec start, end;
    dcp_error err;
    int32_t *ids;
    size_t n;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (int i = 0; i < times; i++) {
        if (text_bpe_encode(t, text, bytes, 0, &ids, &n, &err)) return fail(&err);
        free(ids);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    const double s =
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    printf("%.0f\n", (double)bytes * times / s);
    return 0;
}

int main(int argc, char **argv) {
    size_t json_bytes, bytes;
    dcp_error err;
    text_bpe *t;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    const char *how = argc > 2 ? argv[2] : "";
    if (!file) return fprintf(stderr, "bpe_ids: no file\n"), 2;
    char *json = read_all(file, &json_bytes), *text = read_all(stdin, &bytes);
    fclose(file);
    int status = text_bpe_open(argv[1], json, json_bytes, &t, &err) ? fail(&err) : 0;
    free(json);
    if (status) {
        free(text);
        return status;
    }
    if (!strcmp(how, "--time")) {
        status = print_speed(t, text, bytes, argc > 3 ? atoi(argv[3]) : 1);
    } else {
        for (size_t at = 0, end; at < bytes && !status; at = end + 1) {
            const char *stop = memchr(text + at, 0, bytes - at);
            end = stop ? (size_t)(stop - text) : bytes;
            status = print(t, text + at, end - at, how);
        }
    }
    text_bpe_close(t);
    free(text);
    return status;
}
