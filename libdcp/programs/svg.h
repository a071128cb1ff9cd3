/* Drawings as SVG files: a few primitives over a coordinate system in pixels, y downwards.
 *
 * The file is self-contained (no script, no font, no link) and valid XML whatever text it is given:
 * text is escaped, and what is no UTF-8 or no character of XML becomes U+FFFD. */
#pragma once

#include <stddef.h>

typedef struct svg svg;

typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

/* Begins a drawing of width x height on white in a file that is made, or is a drawing that is
 * replaced; `title` is what a browser's tab shows. Returns 0, or errno's code (EEXIST: another file
 * is there). */
int svg_open(const char *path, double width, double height, const char *title, svg **out);

/* Ends and frees it. Returns 0, or errno's code of the first write that failed; then the file is
 * removed. */
int svg_close(svg *s);

/* Shapes. Colours are as in CSS. `hint` is shown where the pointer rests; NULL: none. */
void svg_rect(svg *s, double x, double y, double width, double height, const char *fill,
              const char *hint);
void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *stroke);
/* A line through n points. */
void svg_path(svg *s, const double *x, const double *y, size_t n, const char *stroke);
/* The same, thin and half transparent: what lies behind another line. */
void svg_path_faint(svg *s, const double *x, const double *y, size_t n, const char *stroke);
void svg_dot(svg *s, double x, double y, double radius, const char *fill, const char *hint);
/* A translucent band `height` thick, from (x1, y1) to (x2, y2), which are its upper corners. */
void svg_band(svg *s, double x1, double y1, double x2, double y2, double height, const char *fill,
              const char *hint);

/* `size` is the letters' height; y is the line they stand on. */
void svg_text(svg *s, double x, double y, double size, svg_anchor anchor, const char *text);
/* The same, turned by 90 degrees: it is read from below. */
void svg_text_upwards(svg *s, double x, double y, double size, svg_anchor anchor, const char *text);

/* A colour to tell thing `i` from its neighbours by: repeats after 12. Static storage. */
const char *svg_color(size_t i);

/* The colour of `part` (0 to 1) on a scale from light to dark, as "#rrggbb". */
#define SVG_COLOR 8
void svg_heat(double part, char color[SVG_COLOR]);
