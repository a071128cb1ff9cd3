/* Writes SVG by fprintf. The stream remembers failed writes until svg_close checks them. */
#include "programs/svg.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct svg {
    FILE *file;
    char path[]; /* for removing an incomplete file */
};

/* Returns the length of the UTF-8 sequence at `text` if it is a character allowed in XML 1.0, else
 * 0. */
static size_t character(const unsigned char *text) {
    static const struct {
        unsigned char mask, lead;
        unsigned long least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 1; n <= 4; n++) {
        if ((text[0] & forms[n - 1].mask) != forms[n - 1].lead) continue;
        unsigned long code = text[0] & (unsigned char)~forms[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((text[i] & 0xc0) != 0x80) return 0;
            code = code << 6 | (text[i] & 0x3f);
        }
        if (code < forms[n - 1].least || code > 0x10ffff) return 0;
        if ((code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff) return 0;
        return code >= 0x20 || code == '\t' || code == '\n' || code == '\r' ? n : 0;
    }
    return 0;
}

static void put_text(FILE *f, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t n = character(at);
        if (!n)
            fputs("\xef\xbf\xbd", f);
        else if (*at == '&')
            fputs("&amp;", f);
        else if (*at == '<')
            fputs("&lt;", f);
        else if (*at == '>')
            fputs("&gt;", f);
        else if (*at == '"')
            fputs("&quot;", f);
        else
            fwrite(at, 1, n, f);
        at += n ? n : 1;
    }
}

/* Ends the element `name` after its attributes were written. */
static void end_shape(svg *s, const char *name, const char *hint) {
    if (!hint) {
        fputs("/>\n", s->file);
        return;
    }
    fputs("><title>", s->file);
    put_text(s->file, hint);
    fprintf(s->file, "</title></%s>\n", name);
}

/* Checks that an existing file is a drawing, so a mistyped name cannot overwrite a checkpoint.
 * Returns 0, or errno's code. */
static int check_target(const char *path) {
    char start[5] = "";
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size == 0) return 0;
    FILE *file = fopen(path, "re");
    if (!file) return errno;
    size_t n = fread(start, 1, sizeof start, file);
    fclose(file);
    bool is_drawing =
        n == sizeof start && (!memcmp(start, "<?xml", 5) || !memcmp(start, "<svg ", 5));
    return is_drawing ? 0 : EEXIST;
}

int svg_open(const char *path, double width, double height, const char *title, svg **out) {
    int refused = check_target(path);
    if (refused) return refused;
    svg *s = malloc(sizeof *s + strlen(path) + 1);
    if (!s) return ENOMEM;
    strcpy(s->path, path);
    s->file = fopen(path, "we");
    if (!s->file) {
        int code = errno;
        free(s);
        return code;
    }
    fprintf(s->file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 "
            "0 %.0f %.0f\" font-family=\"sans-serif\">\n<title>",
            width, height, width, height);
    put_text(s->file, title);
    fputs("</title>\n", s->file);
    svg_rect(s, 0, 0, width, height, "white", NULL);
    *out = s;
    return 0;
}

int svg_close(svg *s) {
    fputs("</svg>\n", s->file);
    errno = 0;
    bool failed = fflush(s->file) || ferror(s->file);
    int code = errno;
    if (fclose(s->file) && !failed) {
        failed = true;
        code = errno;
    }
    struct stat st; /* a device is not removed */
    if (failed && !lstat(s->path, &st) && S_ISREG(st.st_mode)) unlink(s->path);
    free(s);
    return failed ? (code ? code : EIO) : 0;
}

void svg_rect(svg *s, double x, double y, double width, double height, const char *fill,
              const char *hint) {
    fprintf(s->file, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y,
            width, height, fill);
    end_shape(s, "rect", hint);
}

void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *stroke) {
    fprintf(s->file, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"/>\n", x1,
            y1, x2, y2, stroke);
}

static void draw_path(svg *s, const double *x, const double *y, size_t n, const char *stroke,
                      const char *style) {
    fprintf(s->file, "<polyline fill=\"none\" stroke=\"%s\" %s points=\"", stroke, style);
    for (size_t i = 0; i < n; i++) fprintf(s->file, "%s%.2f,%.2f", i ? " " : "", x[i], y[i]);
    fputs("\"/>\n", s->file);
}

void svg_path(svg *s, const double *x, const double *y, size_t n, const char *stroke) {
    draw_path(s, x, y, n, stroke, "stroke-width=\"1.5\"");
}

void svg_path_faint(svg *s, const double *x, const double *y, size_t n, const char *stroke) {
    draw_path(s, x, y, n, stroke, "stroke-width=\"0.5\" stroke-opacity=\"0.5\"");
}

void svg_dot(svg *s, double x, double y, double radius, const char *fill, const char *hint) {
    fprintf(s->file, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"%s\"", x, y, radius, fill);
    end_shape(s, "circle", hint);
}

void svg_band(svg *s, double x1, double y1, double x2, double y2, double height, const char *fill,
              const char *hint) {
    double middle = (x1 + x2) / 2;
    fprintf(s->file,
            "<path d=\"M%.2f %.2fC%.2f %.2f %.2f %.2f %.2f %.2fv%.2fC%.2f %.2f %.2f %.2f %.2f "
            "%.2fz\" fill=\"%s\" fill-opacity=\"0.55\"",
            x1, y1, middle, y1, middle, y2, x2, y2, height, middle, y2 + height, middle,
            y1 + height, x1, y1 + height, fill);
    end_shape(s, "path", hint);
}

static void put_letters(svg *s, double size, svg_anchor anchor, const char *text) {
    static const char *const anchors[] = {"start", "middle", "end"};
    fprintf(s->file, " font-size=\"%.1f\" text-anchor=\"%s\">", size, anchors[anchor]);
    put_text(s->file, text);
    fputs("</text>\n", s->file);
}

void svg_text(svg *s, double x, double y, double size, svg_anchor anchor, const char *text) {
    fprintf(s->file, "<text x=\"%.2f\" y=\"%.2f\"", x, y);
    put_letters(s, size, anchor, text);
}

void svg_text_upwards(svg *s, double x, double y, double size, svg_anchor anchor,
                      const char *text) {
    fprintf(s->file, "<text transform=\"translate(%.2f %.2f) rotate(-90)\"", x, y);
    put_letters(s, size, anchor, text);
}

const char *svg_color(size_t i) {
    static const char *const colors[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                         "#66ccee", "#aa3377", "#997700", "#6699cc",
                                         "#994455", "#44bb99", "#ee8866", "#777777"};
    return colors[i % (sizeof colors / sizeof *colors)];
}

void svg_heat(double part, char color[SVG_COLOR]) {
    static const double light[3] = {222, 235, 247}, dark[3] = {8, 48, 107};
    double at = part < 0 ? 0 : part > 1 ? 1 : part;
    unsigned rgb[3];
    for (int i = 0; i < 3; i++) rgb[i] = (unsigned)(light[i] + (dark[i] - light[i]) * at) & 0xff;
    snprintf(color, SVG_COLOR, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}
