/* A type of tokenizer.json is a row with what reads it; most come down to several steps. */
#include "text/step_parts.h"

#include <string.h>
#include <utf8proc.h>

#include "programs/fail.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct part_kind {
    const char *type;
    int (*read)(text_steps *steps, const text_part *part, dcp_error *err);
} part_kind;

typedef struct part_reader {
    const part_kind *kinds; /* up to a row without type */
    text_steps *steps;
} part_reader;

static int read_kind(void *ctx, const text_part *part, dcp_error *err) {
    const part_reader *reader = ctx;
    char known[256] = "";
    for (const part_kind *kind = reader->kinds; kind->type; kind++) {
        if (!strcmp(kind->type, part->type)) return kind->read(reader->steps, part, err);
        strcat(strcat(known, kind == reader->kinds ? "" : ", "), kind->type);
    }
    return text_part_fail(part, DCP_ERR_UNSUPPORTED, err,
                          "this type is not supported (only %s, and Sequence of them)", known);
}

static int read_parts(const text_part *part, const char *list, const part_kind *kinds,
                      text_steps *steps, dcp_error *err) {
    part_reader reader = {kinds, steps};
    return text_part_each(part, list, read_kind, &reader, err);
}

/* Where there is nothing to say but a pattern. */
static int add_split(text_steps *steps, const text_part *part, const char *regex,
                     text_delimiter delimiter, dcp_error *err) {
    text_step step = {.kind = STEP_SPLIT, .delimiter = delimiter};
    const int status = text_pattern_open(part, regex, &step.pattern, err);
    return status ? status : text_steps_add(steps, part, step, err);
}

static int add_replace(text_steps *steps, const text_part *part, const char *from, const char *by,
                       dcp_error *err) {
    text_step step = {.kind = STEP_REPLACE, .string = (char *)by};
    const int status = text_pattern_of_string(part, from, &step.pattern, err);
    return status ? status : text_steps_add(steps, part, step, err);
}

static int add_prepend(text_steps *steps, const text_part *part, const char *string, text_when when,
                       dcp_error *err) {
    const text_step step = {.kind = STEP_PREPEND, .string = (char *)string, .when = when};
    return text_steps_add(steps, part, step, err);
}

static int add_plain(text_steps *steps, const text_part *part, text_step_kind kind,
                     dcp_error *err) {
    return text_steps_add(steps, part, (text_step){.kind = kind}, err);
}

static int read_unicode(text_steps *steps, const text_part *part, dcp_error *err) {
    const int composed = part->type[strlen(part->type) - 1] == 'C',
              compatible = part->type[2] == 'K';
    const int form = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                     (compatible ? UTF8PROC_COMPAT : 0);
    return text_steps_add(steps, part, (text_step){.kind = STEP_NORMALIZE, .form = form}, err);
}

static int read_prepend(text_steps *steps, const text_part *part, dcp_error *err) {
    const char *string;
    const int status = text_part_string(part, "prepend", NULL, &string, err);
    return status ? status : add_prepend(steps, part, string, WHEN_ALWAYS, err);
}

static int read_replace(text_steps *steps, const text_part *part, dcp_error *err) {
    const char *by = NULL;
    text_step step = {.kind = STEP_REPLACE};
    int status = text_part_string(part, "content", NULL, &by, err);
    if (!status) status = text_pattern_read(part, &step.pattern, err);
    step.string = (char *)by;
    return status ? status : text_steps_add(steps, part, step, err);
}

int text_step_parts_normalizer(const char *file, const json_t *value, text_steps *steps,
                               dcp_error *err) {
    static const part_kind kinds[] = {
        {"NFC", read_unicode},  {"NFD", read_unicode},     {"NFKC", read_unicode},
        {"NFKD", read_unicode}, {"Prepend", read_prepend}, {"Replace", read_replace},
        {NULL, NULL},
    };
    const text_part part = {file, "normalizer", NULL, value};
    return read_parts(&part, "normalizers", kinds, steps, err);
}

static int read_byte_level(text_steps *steps, const text_part *part, dcp_error *err) {
    int has_prefix, has_pattern;
    int status = text_part_flag(part, "add_prefix_space", 1, &has_prefix, err);
    if (!status) status = text_part_flag(part, "use_regex", 1, &has_pattern, err);
    if (!status && has_prefix) status = add_prepend(steps, part, " ", WHEN_NOT_THERE, err);
    if (!status && has_pattern)
        status = add_split(steps, part, GPT2_PATTERN, DELIMITER_ISOLATED, err);
    return status ? status : add_plain(steps, part, STEP_NAME_BYTES, err);
}

static int read_delimiter(const text_part *part, const char *absent, text_delimiter *out,
                          dcp_error *err) {
    static const char *const names[] = {
        [DELIMITER_ISOLATED] = "Isolated",
        [DELIMITER_REMOVED] = "Removed",
        [DELIMITER_TO_PREVIOUS] = "MergedWithPrevious",
        [DELIMITER_TO_NEXT] = "MergedWithNext",
        [DELIMITER_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    const int status = text_part_string(part, "behavior", absent, &name, err);
    if (status) return status;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        *out = (text_delimiter)i;
        if (!strcmp(names[i], name)) return DCP_OK;
    }
    return text_part_fail(part, DCP_ERR_UNSUPPORTED, err, "the behavior %s is not supported", name);
}

static int read_split(text_steps *steps, const text_part *part, dcp_error *err) {
    text_step step = {.kind = STEP_SPLIT};
    int status = read_delimiter(part, NULL, &step.delimiter, err);
    if (!status) status = text_part_flag(part, "invert", 0, &step.inverted, err);
    if (!status) status = text_pattern_read(part, &step.pattern, err);
    return status ? status : text_steps_add(steps, part, step, err);
}

static int read_digits(text_steps *steps, const text_part *part, dcp_error *err) {
    int single;
    const int status = text_part_flag(part, "individual_digits", 0, &single, err);
    if (status) return status;
    return add_split(steps, part, "\\p{N}", single ? DELIMITER_ISOLATED : DELIMITER_CONTIGUOUS,
                     err);
}

static int read_punctuation(text_steps *steps, const text_part *part, dcp_error *err) {
    text_delimiter delimiter;
    const int status = read_delimiter(part, "Isolated", &delimiter, err);
    return status ? status : add_split(steps, part, "[!-/:-@\\[-`{-~\\p{P}]", delimiter, err);
}

/* The character that stands for a space, and whether one comes first. */
static int read_metaspace(const text_part *part, const char **space, const char **scheme,
                          dcp_error *err) {
    int prefix;
    int status = text_part_string(part, "replacement", NULL, space, err);
    if (!status) status = text_part_string(part, "prepend_scheme", "always", scheme, err);
    if (!status) status = text_part_flag(part, "add_prefix_space", 1, &prefix, err);
    if (status) return status;
    if (!**space) return text_part_fail(part, DCP_ERR_ARG, err, "replacement is empty");
    if (!prefix) *scheme = "never";
    if (strcmp(*scheme, "always") && strcmp(*scheme, "first") && strcmp(*scheme, "never"))
        return text_part_fail(part, DCP_ERR_UNSUPPORTED, err,
                              "prepend_scheme is \"%s\", not always, first or never", *scheme);
    return DCP_OK;
}

static int read_metaspace_steps(text_steps *steps, const text_part *part, dcp_error *err) {
    const char *space, *scheme;
    int splits;
    int status = read_metaspace(part, &space, &scheme, err);
    if (!status) status = text_part_flag(part, "split", 1, &splits, err);
    if (!status) status = add_replace(steps, part, " ", space, err);
    if (!status && *scheme != 'n')
        status = add_prepend(steps, part, space,
                             *scheme == 'f' ? WHEN_NOT_THERE_AND_FIRST : WHEN_NOT_THERE, err);
    if (status || !splits) return status;
    text_step step = {.kind = STEP_SPLIT, .delimiter = DELIMITER_TO_NEXT};
    status = text_pattern_of_string(part, space, &step.pattern, err);
    return status ? status : text_steps_add(steps, part, step, err);
}

int text_step_parts_pre_tokenizer(const char *file, const json_t *value, text_steps *steps,
                                  dcp_error *err) {
    static const part_kind kinds[] = {
        {"ByteLevel", read_byte_level},
        {"Split", read_split},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"Metaspace", read_metaspace_steps},
        {NULL, NULL},
    };
    const text_part part = {file, "pre_tokenizer", NULL, value};
    return read_parts(&part, "pretokenizers", kinds, steps, err);
}

static int read_unname(text_steps *steps, const text_part *part, dcp_error *err) {
    return add_plain(steps, part, STEP_UNNAME_BYTES, err);
}

static int read_fallback(text_steps *steps, const text_part *part, dcp_error *err) {
    return add_plain(steps, part, STEP_BYTE_FALLBACK, err);
}

/* What follows is done to the whole text. */
static int read_fuse(text_steps *steps, const text_part *part, dcp_error *err) {
    (void)steps, (void)part, (void)err;
    return DCP_OK;
}

static int read_strip(text_steps *steps, const text_part *part, dcp_error *err) {
    const char *character;
    json_int_t left, right;
    int status = text_part_string(part, "content", NULL, &character, err);
    if (!status) status = text_part_number(part, "start", UINT32_MAX, &left, err);
    if (!status) status = text_part_number(part, "stop", UINT32_MAX, &right, err);
    if (status) return status;
    if (!*character) return text_part_fail(part, DCP_ERR_ARG, err, "content is empty");
    const text_step step = {.kind = STEP_STRIP,
                            .string = (char *)character,
                            .left = (size_t)left,
                            .right = (size_t)right};
    return text_steps_add(steps, part, step, err);
}

static int read_metaspace_back(text_steps *steps, const text_part *part, dcp_error *err) {
    const char *space, *scheme;
    const int status = read_metaspace(part, &space, &scheme, err);
    return status ? status : add_replace(steps, part, space, " ", err);
}

typedef struct decoder_reader {
    part_reader parts;
    int fused, bytes; /* what came before */
} decoder_reader;

/* After bytes that may be no characters only Fuse, and after that only Strip, which then is about
 * the whole text. */
static int read_decoder(void *ctx, const text_part *part, dcp_error *err) {
    decoder_reader *d = ctx;
    const int is_strip = !strcmp(part->type, "Strip"), is_fuse = !strcmp(part->type, "Fuse");
    if (d->fused && is_strip) return DCP_OK;
    if ((d->fused || d->bytes) && !is_fuse)
        return text_part_fail(part, DCP_ERR_UNSUPPORTED, err, "it is supported before %s only",
                              d->fused ? "Fuse" : "what makes bytes of tokens");
    d->fused |= is_fuse;
    d->bytes |= !strncmp(part->type, "Byte", 4);
    return read_kind(&d->parts, part, err);
}

int text_step_parts_decoder(const char *file, const json_t *value, text_steps *steps,
                            dcp_error *err) {
    static const part_kind kinds[] = {
        {"ByteLevel", read_unname},
        {"ByteFallback", read_fallback},
        {"Replace", read_replace},
        {"Metaspace", read_metaspace_back},
        {"Strip", read_strip},
        {"Fuse", read_fuse},
        {NULL, NULL},
    };
    const text_part part = {file, "decoder", NULL, value};
    decoder_reader reader = {{kinds, steps}, 0, 0};
    if (!value || json_is_null(value))
        return text_part_fail(&part, DCP_ERR_UNSUPPORTED, err,
                              "it is missing: how tokens become a text is not told");
    return text_part_each(&part, "decoders", read_decoder, &reader, err);
}
