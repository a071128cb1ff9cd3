/* Drawings as SVG files: a few primitives in a coordinate system in pixels, in which y points
 * downwards.
 *
 * The file is self-contained (no script, no font, no link) and valid XML, whatever text it is
 * given: text is escaped, and anything that is not UTF-8, or not a character of XML, becomes
 * U+FFFD. */
#pragma once

#include <stddef.h>

typedef struct svg svg;

typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

/* Begins a drawing of width x height on a white background, in a new file or in place of an
 * existing drawing; `title` is shown in a browser's tab. Returns 0, or errno's code (EEXIST: a file
 * that is not a drawing has that name). */
int svg_open(const char *path, double width, double height, const char *title, svg **out);

/* Ends the drawing and frees it. Returns 0, or errno's code of the first write that failed; then
 * the file is removed. */
int svg_close(svg *s);

/* Draw shapes. Colours are written as in CSS. `hint` is shown when the pointer rests on the shape;
 * NULL: no hint. */
void svg_rect(svg *s, double x, double y, double width, double height, const char *fill,
              const char *hint);
void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *stroke);
/* Draws a line through n points. */
void svg_path(svg *s, const double *x, const double *y, size_t n, const char *stroke);
/* Does the same with a thin, half transparent line, for a line behind other lines. */
void svg_path_faint(svg *s, const double *x, const double *y, size_t n, const char *stroke);
void svg_dot(svg *s, double x, double y, double radius, const char *fill, const char *hint);
/* Draws a translucent band of thickness `height`, whose upper corners are (x1, y1) and (x2, y2). */
void svg_band(svg *s, double x1, double y1, double x2, double y2, double height, const char *fill,
              const char *hint);

/* Writes text. `size` is the height of the letters; y is their baseline. */
void svg_text(svg *s, double x, double y, double size, svg_anchor anchor, const char *text);
/* Does the same, rotated by 90 degrees, to be read from bottom to top. */
void svg_text_upwards(svg *s, double x, double y, double size, svg_anchor anchor, const char *text);

/* Returns a colour that distinguishes item `i` from its neighbours; repeats after 12. Static
 * storage. */
const char *svg_color(size_t i);

/* Writes the colour of `part` (0 to 1) on a scale from light to dark, as "#rrggbb". */
#define SVG_COLOR 8
void svg_heat(double part, char color[SVG_COLOR]);
