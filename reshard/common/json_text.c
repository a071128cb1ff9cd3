/* jansson prints all reals of a value with the same number of digits. Here it is the smallest
 * number with which all of them read back as they were: 1e-6 stays 1e-6 instead of
 * 9.9999999999999995e-7. */
#include "common/json_text.h"

#include <errno.h>
#include <stdlib.h>

#include "programs/json_read.h"
#include "programs/program.h"

char *json_text(const json_t *value, size_t flags) {
    return core_json_exact(value, flags | JSON_INDENT(2));
}

int json_text_write(const json_t *value, size_t flags, FILE *out) {
    char *text = json_text(value, flags);
    if (!text) errno = ENOMEM;
    int status = text && fputs(text, out) >= 0 && fputc('\n', out) != EOF ? 0 : -1;
    free(text);
    return status;
}

int json_text_write_file(json_t *value, const char *path) {
    FILE *out = fopen(path, "wx");
    int failed = !out || json_text_write(value, JSON_SORT_KEYS, out);
    if (out) failed |= fclose(out) != 0;
    json_decref(value);
    return failed ? program_fail_errno("cannot write", path) : 0;
}
