/* Tokenizers as models have them, each cut down to a few tokens: ids, the bytes that they stand
 * for, and what is wrong with a tokenizer.json. tests/python/test_tokenizers.py compares large ones
 * with the library `tokenizers`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/bpe.h"

#define BYTE_LEVEL                                                                                 \
    "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':true}"
#define NAMES_ONLY "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define SPLIT(regex) "{'type':'Split','pattern':{'Regex':'" regex "'},'behavior':'Isolated'}"

/* GPT-2's file has no type, and merges as strings. */
#define GPT2                                                                                       \
    "{'version':'1.0','added_tokens':[{'id':9,'content':'<|end|>','special':true}],"               \
    "'normalizer':null,'pre_tokenizer':" BYTE_LEVEL ",'post_processor':" BYTE_LEVEL                \
    ",'decoder':" BYTE_LEVEL ",'model':{'dropout':null,'unk_token':null,"                          \
    "'continuing_subword_prefix':'','end_of_word_suffix':'','vocab':{'a':0,'b':1,'\\u0120':2,"     \
    "'ab':3,'\\u0120ab':4,'\\u010a':5,'\\u00c3':6,'\\u00a4':7,'\\'':8,'<|end|>':9},"               \
    "'merges':['#version: 0.2','a b','\\u0120 ab']}}"

/* Merges as pairs; a whole word may be a token that no merge makes. */
#define LLAMA3                                                                                     \
    "{'added_tokens':[{'id':8,'content':'<|begin|>','special':true,'normalized':false},"           \
    "{'id':9,'content':'<|end|>','special':true,'normalized':false}],'normalizer':null,"           \
    "'pre_tokenizer':{'type':'Sequence','pretokenizers':[" SPLIT(                                  \
        "\\\\p{N}{1,3}| ?\\\\p{L}+|\\\\s") "," NAMES_ONLY                                          \
                                           "]},'post_processor':{'type':'Sequence',"               \
                                           "'processors':[" NAMES_ONLY                             \
                                           ",{'type':'TemplateProcessing','single':[{'"            \
                                           "SpecialToken':{'id':"                                  \
                                           "'<|begin|>','type_id':0}},{'Sequence':{'id':'A','"     \
                                           "type_id':0}},{'SpecialToken':{'id':'E',"               \
                                           "'type_id':0}}],'pair':[],'special_tokens':{'<|begin|>" \
                                           "':{'id':'<|begin|>','ids':[8],"                        \
                                           "'tokens':['<|begin|>']},'E':{'id':'E','ids':[9,9],'"   \
                                           "tokens':['<|end|>','<|end|>']}}}]},"                   \
                                           "'decoder':" NAMES_ONLY                                 \
                                           ",'model':{'type':'BPE','ignore_merges':true,'vocab':{" \
                                           "'1':0,'2':1,"                                          \
                                           "'12':2,'a':3,'b':4,'c':5,'ab':6,'abc':7},'merges':[['" \
                                           "1','2'],['a','b']]}}"

#define QWEN                                                                                       \
    "{'added_tokens':[{'id':9,'content':'<t>','special':false,'normalized':false}],"               \
    "'normalizer':{'type':'NFC'},'pre_tokenizer':{'type':'Sequence','pretokenizers':[" SPLIT(      \
        "\\\\p{N}| ?[^\\\\s\\\\p{N}]+|\\\\s+") "," NAMES_ONLY "]},'decoder':" BYTE_LEVEL           \
                                               ",'model':{'type':'BPE','vocab':{'\\u00c3':0,'"     \
                                               "\\u00a4':1,"                                       \
                                               "'\\u00c3\\u00a4':2,'a':3,'\\u00cc':4,'\\u012a':5," \
                                               "'<':6,'t':7,'>':8},"                               \
                                               "'merges':[['\\u00c3','\\u00a4']]}}"

#define SMOLLM2                                                                                    \
    "{'added_tokens':[],'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits',"     \
    "'individual_digits':true}," BYTE_LEVEL "]},'decoder':" BYTE_LEVEL                             \
    ",'model':{'type':'BPE','vocab':{'1':0,'11':1,'a':2,'\\u0120':3,'\\u01201':4},"                \
    "'merges':['1 1','\\u0120 1']}}"

#define SPM_MODEL                                                                                  \
    "'model':{'type':'BPE','unk_token':'<unk>','fuse_unk':true,'byte_fallback':true,'vocab':{"     \
    "'<unk>':0,'<s>':1,'</s>':2,'<0xC3>':3,'<0xA4>':4,'<0x0A>':5,'\\u2581':6,'a':7,'b':8,"         \
    "'ab':9,'\\u2581ab':10,'\\u2581\\u2581':11},'merges':['a b','\\u2581 ab','\\u2581 \\u2581']}"
#define SPM_ADDED "'added_tokens':[{'id':1,'content':'<s>','special':true,'normalized':false}],"
#define SPM_DECODER                                                                                \
    "'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\\u2581'},"   \
    "'content':' '},{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ',"        \
    "'start':1,'stop':0}]},"
#define LLAMA2                                                                                     \
    "{" SPM_ADDED "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':"    \
    "'\\u2581'},{'type':'Replace','pattern':{'String':' '},'content':'\\u2581'}]},"                \
    "'pre_tokenizer':null," SPM_DECODER SPM_MODEL "}"
#define FIRST_OF_DIGITS                                                                            \
    "{'normalizer':null,'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits'},"    \
    "{'type':'Metaspace','replacement':'\\u2581','prepend_scheme':'first'}]}," SPM_DECODER         \
        SPM_MODEL "}"
#define METASPACE(more)                                                                            \
    "{" SPM_ADDED                                                                                  \
    "'normalizer':null,'pre_tokenizer':{'type':'Metaspace','replacement':'\\u2581'," more "},"     \
    "'decoder':{'type':'Metaspace','replacement':'\\u2581','prepend_scheme':'always'}," SPM_MODEL  \
    "}"

/* In `json` ' stands for ", and \' for '. */
static int open_json(const char *json, text_bpe **out, dcp_error *err) {
    char *text = malloc(strlen(json) + 1), *end = text;
    assert_non_null(text);
    for (const char *at = json; *at; at++) {
        if (at[0] == '\\' && at[1] == '\'')
            *end++ = *++at;
        else
            *end++ = *at == '\'' ? '"' : *at;
    }
    const int status = text_bpe_open("t.json", text, (size_t)(end - text), out, err);
    free(text);
    return status;
}

static text_bpe *must_open(const char *json) {
    text_bpe *t;
    dcp_error err;
    if (open_json(json, &t, &err)) fail_msg("%s", err.message);
    return t;
}

/* The ids as text, with those of the post-processor where the text begins with '+'. */
static void encode(const text_bpe *t, const char *text, char out[512]) {
    int32_t *ids;
    size_t n;
    const int special = *text == '+';
    assert_int_equal(
        text_bpe_encode(t, text + special, strlen(text + special), special, &ids, &n, NULL),
        DCP_OK);
    *out = 0;
    for (size_t i = 0; i < n; i++) snprintf(out + strlen(out), 512 - strlen(out), "%d ", ids[i]);
    free(ids);
}

typedef struct text_case {
    const char *json, *text, *ids;
} text_case;

static const text_case cases[] = {
    {GPT2, "ab ab  ab", "3 4 2 4 "},
    {GPT2, "", ""},
    {GPT2, "+ab", "3 "},
    {GPT2, "b<|end|>ab\n", "1 9 3 5 "},
    {GPT2, "\xc3\xa4", "6 7 "},
    {GPT2, "a\xc3 \xa4'b", "0 6 2 7 8 1 "}, /* no UTF-8 */
    {GPT2, "?a", "0 "},                     /* neither a token nor an unknown one */
    {LLAMA3, "121212", "2 0 1 2 "},
    {LLAMA3, "abc", "7 "},
    {LLAMA3,
     "ab"
     "abc",
     "6 6 5 "},
    {LLAMA3, "+a<|end|>", "8 3 9 9 9 "},
    {LLAMA3, "+", "8 9 9 "},
    {QWEN, "a\xcc\x88", "2 "},
    {QWEN, "a<t>\xcc\x88", "3 9 4 5 "}, /* the mark has no letter before it */
    {SMOLLM2, "11 1a", "0 0 3 0 2 "},
    {LLAMA2, "ab", "10 "},
    {LLAMA2, "  ab", "11 10 "},
    {LLAMA2, "ab<s>ab", "10 1 10 "},
    {LLAMA2, "a\xc3\xa4\n\xe4\xb8\xad\xe4\xb8\xad", "6 7 3 4 5 0 "},
    {LLAMA2, "a\xc3", "6 7 0 "}, /* U+FFFD, which has no bytes among the tokens */
    {LLAMA2, "", ""},
    {METASPACE("'prepend_scheme':'always','split':true"), "ab<s>ab  ab", "10 1 10 6 10 "},
    {METASPACE("'prepend_scheme':'first','split':true"), "ab<s>ab  ab", "10 1 9 6 10 "},
    {METASPACE("'prepend_scheme':'first','split':false"), "ab  ab<s>", "10 6 10 1 "},
    {METASPACE("'prepend_scheme':'never','split':false"), "ab   b", "9 11 6 8 "},
    {METASPACE("'add_prefix_space':true"), " ab", "10 "},
    {FIRST_OF_DIGITS, "ab1ab", "10 0 9 "},
};

static void ids_are_those_of_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char ids[512];
        text_bpe *t = must_open(cases[i].json);
        encode(t, cases[i].text, ids);
        if (strcmp(ids, cases[i].ids) != 0)
            fail_msg("case %zu, \"%s\": %snot %s", i, cases[i].text, ids, cases[i].ids);
        text_bpe_close(t);
    }
}

/* Added tokens: the longest; whitespace beside them; whole words. */
static void added_tokens(void **state) {
    (void)state;
    static const char json[] =
        "{'added_tokens':[{'id':3,'content':'<a'},{'id':4,'content':'<a>','lstrip':true},"
        "{'id':5,'content':'wo','single_word':true,'rstrip':true},{'id':6,'content':'\\u00e9'}],"
        "'normalizer':{'type':'NFC'},'pre_tokenizer':" BYTE_LEVEL ",'decoder':" BYTE_LEVEL
        ",'model':{'type':'BPE','vocab':{'w':0,'\\u0120':1,'b':2,'o':7},'merges':[]}}";
    static const struct {
        const char *text, *ids;
    } texts[] = {
        {"<a><ab", "4 3 2 "},          {"b  <a> b", "2 4 1 2 "},  {"wob wo  b", "0 7 2 1 5 2 "},
        {"wo\xc3\xa4 wo", "0 7 1 5 "}, {"e\xcc\x81wo", "6 0 7 "}, {"wo<a>\n", "5 4 "},
    };
    text_bpe *t = must_open(json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char ids[512];
        encode(t, texts[i].text, ids);
        if (strcmp(ids, texts[i].ids) != 0)
            fail_msg("\"%s\": %snot %s", texts[i].text, ids, texts[i].ids);
    }
    text_bpe_close(t);
}

static void expect_bytes(const text_bpe *t, int32_t id, const char *expected, int special) {
    const char *bytes;
    size_t n;
    int is_special;
    assert_int_equal(text_bpe_bytes(t, id, &bytes, &n, &is_special, NULL), DCP_OK);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(bytes, expected, n);
    assert_int_equal(is_special, special);
}

static void bytes_of_ids(void **state) {
    (void)state;
    const char *bytes;
    size_t n;
    int special;
    dcp_error err;
    text_bpe *t = must_open(GPT2);
    assert_int_equal(text_bpe_vocabulary(t), 10);
    expect_bytes(t, 4, " ab", 0);
    expect_bytes(t, 6, "\xc3", 0);
    expect_bytes(t, 9, "", 1);
    assert_int_equal(text_bpe_bytes(t, 10, &bytes, &n, &special, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "no token with the id 10"));
    assert_int_equal(text_bpe_bytes(t, -1, &bytes, &n, &special, NULL), DCP_ERR_ARG);
    text_bpe_close(t);
    t = must_open(LLAMA2);
    expect_bytes(t, 3, "\xc3", 0);
    expect_bytes(t, 10, " ab", 0);
    expect_bytes(t, 1, "", 1);
    text_bpe_close(t);
    t = must_open(QWEN);
    expect_bytes(t, 9, "<t>", 0);
    text_bpe_close(t);
}

/* What dcp-export writes for a model of bytes. */
static void every_byte_of_a_byte_tokenizer(void **state) {
    (void)state;
    char json[8192] =
        "{'added_tokens':[],'normalizer':null,'pre_tokenizer':" NAMES_ONLY
        ",'post_processor':null,'decoder':" NAMES_ONLY
        ",'model':{'type':'BPE','dropout':null,'unk_token':null,'merges':[],'vocab':{";
    for (unsigned byte = 0, other = 0x100; byte < 256; byte++) {
        const int is_seen = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s'\\u%04x':%u", byte ? "," : "",
                 is_seen ? byte : other, byte);
        other += !is_seen;
    }
    strcat(json, "}}}");
    text_bpe *t = must_open(json);
    char text[256];
    int32_t *ids;
    size_t n;
    for (int i = 0; i < 256; i++) text[i] = (char)(255 - i);
    assert_int_equal(text_bpe_encode(t, text, sizeof text, 1, &ids, &n, NULL), DCP_OK);
    assert_int_equal(n, 256);
    for (int i = 0; i < 256; i++) {
        const char *bytes;
        int special;
        assert_int_equal(ids[i], 255 - i);
        assert_int_equal(text_bpe_bytes(t, ids[i], &bytes, &n, &special, NULL), DCP_OK);
        assert_true(n == 1 && *bytes == text[i] && !special);
    }
    free(ids);
    text_bpe_close(t);
}

/* One word of a million letters: pairs first, from the left, then pairs of those. */
static void a_long_word(void **state) {
    (void)state;
    enum { LETTERS = 1000003 };
    text_bpe *t =
        must_open("{'pre_tokenizer':" NAMES_ONLY ",'decoder':" NAMES_ONLY ",'model':{'type':'BPE',"
                  "'vocab':{'a':0,'aa':1,'aaaa':2},'merges':['a a','aa aa']}}");
    char *text = malloc(LETTERS);
    int32_t *ids;
    size_t n;
    assert_non_null(text);
    memset(text, 'a', LETTERS);
    assert_int_equal(text_bpe_encode(t, text, LETTERS, 0, &ids, &n, NULL), DCP_OK);
    assert_int_equal(n, LETTERS / 4 + 2);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], i < n - 2 ? 2 : i == n - 2 ? 1 : 0);
    free(ids);
    free(text);
    text_bpe_close(t);
}

#define WITH(member, value)                                                                        \
    "{'" member "':" value ",'decoder':" BYTE_LEVEL                                                \
    ",'model':{'type':'BPE','vocab':{'a':0,'b':1},'merges':[]}}"
#define MODEL(members) "{'decoder':" BYTE_LEVEL ",'model':{'type':'BPE'," members "}}"
#define AB "'vocab':{'a':0,'b':1},"
#define IN(inner) "{'type':'Sequence','normalizers':[" inner "]}"

static const struct {
    const char *json;
    int status;
    const char *named;
} wrong[] = {
    {"{'model':", DCP_ERR_CORRUPT, "t.json: line 1, column"},
    {"[1]", DCP_ERR_ARG, "t.json: it is not an object with a model"},
    {"{'model':{},'model':{}}", DCP_ERR_CORRUPT, "duplicate object key"},
    {"{'decoder':" BYTE_LEVEL "}", DCP_ERR_ARG, "t.json: model: it is not an object"},
    {"{'decoder':" BYTE_LEVEL ",'model':{'type':'WordPiece','vocab':{}}}", DCP_ERR_UNSUPPORTED,
     "t.json: model WordPiece: this type is not supported (only BPE)"},
    {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[]}}", DCP_ERR_UNSUPPORTED,
     "decoder: it is missing"},
    {MODEL("'merges':[]"), DCP_ERR_ARG, "vocab is not an object with tokens"},
    {MODEL("'vocab':{'a':0}"), DCP_ERR_ARG, "merges is not a list"},
    {MODEL(AB "'merges':[],'dropout':0.1"), DCP_ERR_UNSUPPORTED, "dropout is not supported"},
    {MODEL(AB "'merges':[],'end_of_word_suffix':'</w>'"), DCP_ERR_UNSUPPORTED,
     "end_of_word_suffix is not supported"},
    {MODEL(AB "'merges':[],'continuing_subword_prefix':'##'"), DCP_ERR_UNSUPPORTED,
     "continuing_subword_prefix is not supported"},
    {MODEL(AB "'merges':[],'fuse_unk':1"), DCP_ERR_ARG, "fuse_unk is neither true nor false"},
    {MODEL(AB "'merges':[],'unk_token':'<unk>'"), DCP_ERR_CORRUPT,
     "model: unk_token \"<unk>\" is no token"},
    {MODEL(AB "'merges':[],'unk_token':false"), DCP_ERR_ARG, "unk_token is not a string"},
    {MODEL("'vocab':{'a':0,'b':0},'merges':[]"), DCP_ERR_CORRUPT, "id 0 has two tokens, \""},
    {MODEL("'vocab':{'a':-1},'merges':[]"), DCP_ERR_ARG,
     "the id of token \"a\" is not an integer of 0 to 16777215"},
    {MODEL("'vocab':{'a':2147483647},'merges':[]"), DCP_ERR_ARG, "the id of token \"a\""},
    {MODEL("'vocab':{'a':'1'},'merges':[]"), DCP_ERR_ARG, "the id of token \"a\""},
    {MODEL(AB "'merges':['a b']"), DCP_ERR_CORRUPT,
     "merge 0 is about \"ab\", which is no token of vocab"},
    {MODEL(AB "'merges':[['b','c']]"), DCP_ERR_CORRUPT, "merge 0 is about \"c\""},
    {MODEL(AB "'merges':['a b c']"), DCP_ERR_ARG, "merge 0 is neither two tokens"},
    {MODEL(AB "'merges':[['a']]"), DCP_ERR_ARG, "merge 0 is neither two tokens"},
    {MODEL(AB "'merges':[7]"), DCP_ERR_ARG, "merge 0 is neither two tokens"},
    {WITH("normalizer", "{'type':'Precompiled'}"), DCP_ERR_UNSUPPORTED,
     "t.json: normalizer Precompiled: this type is not supported (only NFC, "},
    {WITH("normalizer", "'NFC'"), DCP_ERR_ARG, "normalizer: it is not an object"},
    {WITH("normalizer", "{'pattern':1}"), DCP_ERR_ARG, "normalizer: it has no type"},
    {WITH("normalizer", "{'type':'Sequence'}"), DCP_ERR_ARG, "it has no list normalizers"},
    {WITH("normalizer", IN(IN(IN(IN(IN(IN(IN(IN(IN("")))))))))), DCP_ERR_UNSUPPORTED,
     "normalizer Sequence: it is in 8 others"},
    {WITH("normalizer", "{'type':'Replace','content':'','pattern':{'String':''}}"), DCP_ERR_ARG,
     "normalizer Replace: the pattern is empty"},
    {WITH("normalizer", "{'type':'Replace','content':'','pattern':'a'}"), DCP_ERR_ARG,
     "pattern is not an object"},
    {WITH("normalizer", "{'type':'Prepend','prepend':'a\\u0000b'}"), DCP_ERR_UNSUPPORTED,
     "prepend holds a NUL"},
    {WITH("pre_tokenizer", "{'type':'BertPreTokenizer'}"), DCP_ERR_UNSUPPORTED,
     "pre_tokenizer BertPreTokenizer: this type"},
    {WITH("pre_tokenizer", SPLIT("(a")), DCP_ERR_ARG, "Split: the pattern (a: missing closing"},
    {WITH("pre_tokenizer", SPLIT("[a&&b]")), DCP_ERR_UNSUPPORTED, "from &&b] on"},
    {WITH("pre_tokenizer", SPLIT("[a[b]]")), DCP_ERR_UNSUPPORTED, "from [b]] on"},
    {WITH("pre_tokenizer", SPLIT("\\\\h+")), DCP_ERR_UNSUPPORTED, "from \\h+ on"},
    {WITH("pre_tokenizer", SPLIT("a{2}+")), DCP_ERR_UNSUPPORTED, "from }+ on"},
    {WITH("pre_tokenizer", "{'type':'Split','pattern':{'String':'a'},'behavior':'Odd'}"),
     DCP_ERR_UNSUPPORTED, "the behavior Odd is not supported"},
    {WITH("pre_tokenizer", "{'type':'Metaspace','replacement':'_','prepend_scheme':'odd'}"),
     DCP_ERR_UNSUPPORTED, "prepend_scheme is \"odd\""},
    {"{'decoder':{'type':'CTC'}}", DCP_ERR_UNSUPPORTED, "decoder CTC: this type"},
    {"{'decoder':{'type':'Sequence','decoders':[{'type':'ByteFallback'},{'type':'Metaspace',"
     "'replacement':'_'}]}}",
     DCP_ERR_UNSUPPORTED, "decoder Metaspace: it is supported before what makes bytes"},
    {WITH("post_processor", "{'type':'BertProcessing'}"), DCP_ERR_UNSUPPORTED,
     "post_processor BertProcessing: this type"},
    {WITH("post_processor", "{'type':'TemplateProcessing','single':[]}"), DCP_ERR_ARG,
     "single is not a list with a sequence A"},
    {WITH("post_processor", "{'type':'TemplateProcessing','single':[{'Sequence':{'id':'B'}}]}"),
     DCP_ERR_ARG, "single is not special tokens and one sequence A"},
    {WITH("post_processor", "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}],"
                            "'special_tokens':{}}"),
     DCP_ERR_ARG, "special_tokens has no ids for x"},
    {WITH("post_processor", "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}],"
                            "'special_tokens':{'x':{'ids':[2]}}}"),
     DCP_ERR_ARG, "an id of x is not an integer of 0 to 1"},
    {WITH("added_tokens", "{}"), DCP_ERR_ARG, "added_tokens: it is not a list"},
    {WITH("added_tokens", "[{'id':5}]"), DCP_ERR_ARG, "added_tokens: content is missing"},
    {WITH("added_tokens", "[{'id':-5,'content':'x'}]"), DCP_ERR_ARG,
     "added_tokens x: id is not an integer of 0 to"},
    {WITH("added_tokens", "[{'id':5,'content':'x','lstrip':'no'}]"), DCP_ERR_ARG,
     "added_tokens x: lstrip is neither"},
    {WITH("added_tokens", "[{'id':1,'content':'a'}]"), DCP_ERR_CORRUPT,
     "added_tokens has id 1 for \"a\", which is 0 in vocab"},
    {WITH("added_tokens", "[{'id':1,'content':'x'}]"), DCP_ERR_CORRUPT,
     "id 1 has two tokens, \"b\" and \"x\""},
};

static void wrong_files_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        text_bpe *t;
        dcp_error err = {0};
        const int status = open_json(wrong[i].json, &t, &err);
        if (status == DCP_OK) fail_msg("%s is taken", wrong[i].json);
        if (!strstr(err.message, wrong[i].named))
            fail_msg("\"%s\" does not name %s", err.message, wrong[i].named);
        assert_int_equal(status, wrong[i].status);
    }
}

/* A file that ends early is refused, wherever that is. */
static void cut_files_are_refused(void **state) {
    (void)state;
    for (size_t n = 0; n < strlen(LLAMA3); n++) {
        char json[sizeof LLAMA3];
        text_bpe *t;
        snprintf(json, sizeof json, "%.*s", (int)n, LLAMA3);
        assert_int_equal(open_json(json, &t, NULL), DCP_ERR_CORRUPT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_tokenizers),
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(bytes_of_ids),
        cmocka_unit_test(every_byte_of_a_byte_tokenizer),
        cmocka_unit_test(a_long_word),
        cmocka_unit_test(wrong_files_are_refused_by_name),
        cmocka_unit_test(cut_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
