/* Checking one value against its key: its type and range. Messages name the key's full path, what
 * was given and what is asked for. */
#include "config/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/deepspeed.h"
#include "config/stores.h"
#include "programs/fail.h"

static int integer_fits(const config_key *key, const json_t *value) {
    if (!json_is_integer(value)) return 0;
    const double number = (double)json_integer_value(value);
    return number >= key->min && number <= key->max;
}

static int number_fits(const config_key *key, const json_t *value) {
    if (!json_is_number(value)) return 0;
    const double number = json_number_value(value);
    return number >= key->min && number <= key->max;
}

static int choice_fits(const config_key *key, const json_t *value) {
    const char *text = json_string_value(value);
    if (!text || *text == '\0') return 0;
    const size_t length = strlen(text);
    for (const char *at = key->choices; at; at = strchr(at, '|')) {
        if (*at == '|') at++;
        if (strncmp(at, text, length) == 0 && (at[length] == '|' || at[length] == '\0')) return 1;
    }
    return 0;
}

static int betas_fit(const json_t *value) {
    if (json_array_size(value) != 2) return 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *beta = json_array_get(value, i);
        if (!json_is_number(beta)) return 0;
        const double number = json_number_value(beta);
        if (!(number >= 0 && number < 1)) return 0;
    }
    return 1;
}

static int names_fit(const json_t *value) {
    if (!json_is_array(value)) return 0;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_string(json_array_get(value, i))) return 0;
    return 1;
}

static int fits(const config_key *key, const json_t *value) {
    if (json_is_null(value)) return key->nullable;
    switch (key->type) {
    case CONFIG_TEXT:
        return json_string_length(value) > 0;
    case CONFIG_CHOICE:
        return choice_fits(key, value);
    case CONFIG_INTEGER:
        return integer_fits(key, value);
    case CONFIG_NUMBER:
        return number_fits(key, value);
    case CONFIG_BETAS:
        return betas_fit(value);
    case CONFIG_SWITCH:
        return json_is_boolean(value);
    case CONFIG_NAMES:
        return names_fit(value);
    case CONFIG_STORES:
        return json_is_array(value);
    case CONFIG_MODEL:
        return json_is_object(value) || json_string_length(value) > 0;
    }
    return 0;
}

/* What the key asks for, for a message. */
static void expectation(const config_key *key, char *out, size_t size) {
    static const char *const fixed[] = {
        [CONFIG_TEXT] = "a string with something in it",
        [CONFIG_BETAS] = "two numbers from 0 to below 1",
        [CONFIG_SWITCH] = "true or false",
        [CONFIG_NAMES] = "a list of strings",
        [CONFIG_STORES] = "a list of objects",
        [CONFIG_MODEL] = "the path of a config.json, or an object",
    };
    if (key->type == CONFIG_CHOICE)
        snprintf(out, size, "one of %s", key->choices);
    else if (key->type == CONFIG_INTEGER)
        snprintf(out, size, "an integer from %.16g to %.16g", key->min, key->max);
    else if (key->type == CONFIG_NUMBER)
        snprintf(out, size, "a number from %g to %g", key->min, key->max);
    else
        snprintf(out, size, "%s", fixed[key->type]);
    if (key->nullable) strncat(out, ", or null", size - strlen(out) - 1);
}

/* What to do about a value that users of other programs or versions may give. */
static const char *advice(const config_key *key, const char *text) {
    if (text && strcmp(text, "auto") == 0)
        return "; nobody fills it in here: give a value, or leave it out";
    if (text && strcmp(key->path, "checkpoint.engine") == 0 && strcmp(text, "cufile") == 0)
        return "; cufile was removed, as no machine had run it: take auto";
    return "";
}

int config_key_check(const config_key *key, const json_t *value, dcp_error *err) {
    if (fits(key, value))
        return key->type == CONFIG_STORES ? stores_check(key->path, value, err) : DCP_OK;
    char *given = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    char wanted[160];
    expectation(key, wanted, sizeof wanted);
    const char *text = json_string_value(value), *ours = deepspeed_name(key->path, text);
    const int status = core_fail(
        err, DCP_ERR_ARG, "%s: %.200s is not %s%s%s", key->path, given ? given : "the value",
        wanted, ours ? "; DeepSpeed's name for " : advice(key, text), ours ? ours : "");
    free(given);
    return status;
}
