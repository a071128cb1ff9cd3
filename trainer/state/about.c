/* Naming the processor and the kernels, and noticing a change of either. */
#include "about.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../say.h"

enum { ABOUT_MAX = 1 << 16, CRC_DIGITS = 16 };

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

char *about_members(const char *kernels) {
    char processor[256];
    processor_name(processor, sizeof processor);
    json_t *o = json_pack("{ssss}", "kernels", kernels, "processor", processor);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void compare(const json_t *about, const char *key, const char *here) {
    const char *there = json_string_value(json_object_get(about, key));
    if (!there)
        say_warning(0,
                    "about.json does not name its %s: cannot tell whether it computes the same "
                    "bits here",
                    key);
    else if (strcmp(there, here) != 0)
        say_warning(0,
                    "the checkpoint was computed with %s \"%s\", here it is \"%s\": results may "
                    "differ in their last digits",
                    key, there, here);
}

/* The file's bytes; 0: it cannot be read, is empty or larger than any that is written. */
static size_t read_about(const char *step_path, char text[ABOUT_MAX]) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/about.json", step_path);
    FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (!file) return 0;
    const size_t bytes = fread(text, 1, ABOUT_MAX, file);
    fclose(file);
    return bytes;
}

/* CRC-64/XZ, bit by bit: the file is small. */
static uint64_t crc64(const char *text, size_t bytes) {
    uint64_t crc = ~(uint64_t)0;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (unsigned char)text[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xc96c5795d7870f42u : 0);
    }
    return ~crc;
}

/* Whether the file's last member is the CRC of the file with that member's digits as zeros. */
static int is_intact(char *text, size_t bytes) {
    static const char key[] = "\"crc64\": \"";
    char *digits = NULL, stored[CRC_DIGITS + 1], computed[CRC_DIGITS + 1];
    for (size_t i = 0; i + sizeof key - 1 + CRC_DIGITS <= bytes; i++)
        if (memcmp(text + i, key, sizeof key - 1) == 0) digits = text + i + sizeof key - 1;
    if (!digits) return 0;
    snprintf(stored, sizeof stored, "%.*s", CRC_DIGITS, digits);
    memset(digits, '0', CRC_DIGITS);
    snprintf(computed, sizeof computed, "%016" PRIx64, crc64(text, bytes));
    return strcmp(stored, computed) == 0;
}

void about_compare_kernels(const char *step_path, const char *kernels) {
    char processor[256], text[ABOUT_MAX];
    const size_t bytes = read_about(step_path, text);
    if (bytes == 0 || !is_intact(text, bytes)) {
        say_warning(
            0, "%s/about.json is %s: cannot tell whether this processor computes the same bits",
            step_path, bytes ? "damaged" : "missing");
        return;
    }
    json_t *about = json_loadb(text, bytes, 0, NULL);
    processor_name(processor, sizeof processor);
    compare(about, "kernels", kernels);
    compare(about, "processor", processor);
    json_decref(about);
}
