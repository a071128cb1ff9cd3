/* A drawing is a complete XML document whatever text it shows: names in checkpoints may be
 * anything. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "programs/svg.h"

/* A drawing that shows `text` in all places, malloc'd. */
static char *draw(const char *text) {
    char path[] = "/tmp/dcp_svg.XXXXXX", *all = calloc(1, 4096);
    svg *s;
    close(mkstemp(path));
    assert_non_null(all);
    assert_int_equal(svg_open(path, 100, 50, text, &s), 0);
    svg_rect(s, 1, 2, 3, 4, svg_color(0), text);
    svg_band(s, 0, 0, 10, 10, 5, svg_color(13), text);
    svg_text(s, 5, 5, 10, SVG_MIDDLE, text);
    svg_text_upwards(s, 5, 5, 10, SVG_END, text);
    assert_int_equal(svg_close(s), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_in_range(fread(all, 1, 4095, file), 1, 4094);
    fclose(file);
    unlink(path);
    return all;
}

/* Checks that `wanted` replaces `text` in all five places, as an element's text. */
static void shows(const char *text, const char *wanted) {
    char *all = draw(text), element[256];
    size_t found = 0;
    snprintf(element, sizeof element, ">%s</", wanted);
    for (const char *at = all; (at = strstr(at, element)); at++) found++;
    assert_int_equal(found, 5);
    free(all);
}

static void markup_is_escaped(void **state) {
    (void)state;
    shows("plain", "plain");
    shows("</title><script>a&b\"", "&lt;/title&gt;&lt;script&gt;a&amp;b&quot;");
    shows("%s%n", "%s%n");
}

static void what_is_no_character_is_replaced(void **state) {
    (void)state;
    shows("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
#define ONE "\xef\xbf\xbd"
    shows("\x01", ONE);
    shows("a\xff", "a" ONE);
    shows("\xc0\x80", ONE ONE);                 /* too long */
    shows("\xed\xa0\x80", ONE ONE ONE);         /* a surrogate */
    shows("\xef\xbf\xbe", ONE ONE ONE);         /* U+FFFE */
    shows("\xf4\x90\x80\x80", ONE ONE ONE ONE); /* over U+10FFFF */
    shows("\xe2\x82", ONE ONE);                 /* ends early */
}

static void a_failure_shows_at_the_end(void **state) {
    svg *s;
    (void)state;
    assert_int_equal(svg_open("/nowhere/file.svg", 1, 1, "", &s), ENOENT);
    assert_int_equal(svg_open("/dev/full", 1, 1, "", &s), 0);
    assert_int_equal(svg_close(s), ENOSPC);
}

static void heat_goes_from_light_to_dark(void **state) {
    char low[SVG_COLOR], high[SVG_COLOR], over[SVG_COLOR];
    (void)state;
    svg_heat(0, low);
    svg_heat(1, high);
    svg_heat(7, over);
    assert_string_equal(low, "#deebf7");
    assert_string_equal(high, "#08306b");
    assert_string_equal(over, high);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markup_is_escaped),
        cmocka_unit_test(what_is_no_character_is_replaced),
        cmocka_unit_test(a_failure_shows_at_the_end),
        cmocka_unit_test(heat_goes_from_light_to_dark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
