#include "programs/json_read.h"

#include <stdbool.h>
#include <string.h>

size_t program_json_mark(const char *text, size_t bytes) {
    static const char mark[] = "\xef\xbb\xbf";
    const size_t n = sizeof mark - 1;
    return bytes >= n && memcmp(text, mark, n) == 0 ? n : 0;
}

/* Returns the word Infinity, -Infinity or NaN if `text` begins with it, otherwise NULL. */
static const char *word_at(const char *text, size_t bytes) {
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (bytes >= n && memcmp(text, words[i], n) == 0) return words[i];
    }
    return NULL;
}

const char *program_json_infinite(const char *text, size_t bytes, json_error_t *where) {
    int line = 1, column = 1;
    bool is_string = false;
    for (size_t i = 0; i < bytes && line <= where->line; i++, column++) {
        if (text[i] == '\n') {
            line++;
            column = 0;
        } else if (is_string && text[i] == '\\') {
            i++;
            column++;
        } else if (text[i] == '"') {
            is_string = !is_string;
        }
        const char *word = is_string || line != where->line ? NULL : word_at(text + i, bytes - i);
        if (word) where->column = column;
        if (word) return word;
    }
    return NULL;
}
