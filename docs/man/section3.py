#!/usr/bin/env python3
"""Makes the man pages of section 3 from the public headers, whose comments are the manual.

    section3.py HEADERS CHANGELOG VERSION OUT

Writes a page for each header, such as OUT/dcp_save.3 for HEADERS/save.h. For each function and type of a header, writes
another page that refers to the header's page (.so). The date is taken from the newest version in CHANGELOG."""
import os, re, sys

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
HIDDEN = re.compile(r"DCP_(API|PRINTF|SIZED)\b|\w+_ENUM\b|DCP_\w+_HP?P?\b")  # macros for the headers' own use


def comment_lines(text):
    """Returns the lines of a comment, without the asterisks at their beginnings."""
    lines = [re.sub(r"^ ?\* ?", "", line).rstrip() for line in text.split("\n")]
    return [lines[0].strip()] + lines[1:]


def items(text):
    """Returns what a header contains, as a list of (kind, code, lines of the comment). kind is text, macro, type or
    function; text is a comment without a declaration."""
    at, comment, found = 0, None, []
    text = re.sub(r"#ifdef __cplusplus\n.*?\n(?=#else|#endif)", "", text, flags=re.S)
    pattern = re.compile(r"/\*.*?\*/|#(?:[^\n\\]|\\\n|\\.)*|\n[ \t]*\n|[^\s/#]", re.S)
    while m := pattern.search(text, at):
        token, at = m.group(), m.end()
        if token.startswith("/*"):
            comment = comment_lines(COMMENT.fullmatch(token).group(1))
        elif token.isspace():  # a blank line: the comment before it, if any, belongs to no declaration
            found.append(("text", "", comment or []))
            comment = None
        elif token.startswith("#"):
            macro = re.match(r"#define (\w+)[ (]", token)
            if macro and not HIDDEN.match(macro.group(1)):
                found.append(("macro", re.sub(r" *\\\n", "\n", token), comment))
            comment = None
        else:
            end = end_of_declaration(text, m.start())
            code, at = text[m.start():end], end
            after = re.compile(r"[ \t]*/\*(.*?)\*/", re.S).match(text, at)  # a comment on the same line
            if after:
                at, comment = after.end(), (comment or []) + comment_lines(after.group(1))
            kind = "function" if code.startswith("DCP_API") else "type"
            if kind == "function":  # keeps continued lines below the first parameter
                code = re.sub(r"\n {8}", "\n", code[len("DCP_API "):])
            found.append((kind, code, comment))
            comment = None
    return found


def end_of_declaration(text, at):
    """Returns the position after the first semicolon that is neither in braces nor in a comment."""
    depth = 0
    for m in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(text, at):
        depth += {"{": 1, "}": -1}.get(m.group(), 0)
        if m.group() == ";" and depth == 0:
            return m.end()
    raise SystemExit(f"section3.py: this declaration has no end: {text[at:at + 60]}")


def name_of(kind, code):
    if kind == "macro":
        return re.match(r"#define (\w+)", code).group(1)
    bare = COMMENT.sub("", code)
    if kind == "function":
        return re.search(r"(\w+)\(", bare).group(1)
    function = re.search(r"\(\*(\w+)\)", bare) if "{" not in bare else None
    return function.group(1) if function else re.findall(r"\w+", bare)[-1]


def escaped(line):
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def verbatim(lines):
    while lines and not lines[-1]:
        lines = lines[:-1]
    return [".nf"] + [escaped(line.replace("\t", "    ")) if line else "\\&" for line in lines] + [".fi"]


def prose(lines):
    """Formats a comment. Paragraphs are filled, but the lines of a paragraph from its first to its last indented line
    stay as they are."""
    out, block = [], []
    for line in list(lines) + [""]:
        if line:
            block.append(line)
            continue
        k = next((i for i, text in enumerate(block) if text.startswith("  ")), len(block))
        if block:
            out.append(".PP")
            for text in block[:k]:
                out += [".br"] * (text.startswith("DCP_ERR_") and out[-1] != ".PP") + [escaped(text)]
        rest = block[k:]
        last = max((i for i, text in enumerate(rest) if text.startswith("  ")), default=-1) + 1
        if last:
            out += verbatim(rest[:last])
            out += [".PP"] * bool(rest[last:]) + [escaped(text) for text in rest[last:]]
        block = []
    return out


def groups(found):
    """Returns (codes, comment) for each group of functions. Functions that follow each other without a comment or a
    blank line are one group, which has the comment of the first."""
    out, is_open = [], False
    for kind, code, comment in found:
        if kind == "function":
            if is_open and comment is None:
                out[-1][0].append(code)
            else:
                out.append(([code], comment or []))
            is_open = True
        else:
            is_open = False
    return out


def page(stem, text, head, others):
    found = items(re.sub(r"#ifndef \w+\n#define \w+\n", "\n", text, count=1))
    about = next((comment for kind, _, comment in found if kind == "text" and comment), [])
    title = "dcp" if stem == "dcp" else f"dcp_{stem}"
    named = [(kind, name_of(kind, code), code, comment) for kind, code, comment in found if kind != "text"]
    links = [name for kind, name, _, _ in named if kind != "macro" and name != title]
    what = re.split(r"[.;](?: |$)", " ".join(about).strip())[0].strip()
    public = [name for kind, name, _, _ in named if kind == "function" and name != title]
    out = [head.format(title.upper()), ".nh", ".ad l", ".SH NAME",
           escaped(", ".join([title] + public)) + " \\- " + escaped(what[:1].lower() + what[1:]),
           ".SH SYNOPSIS", ".nf", f"#include <dcp/{'mpi' if stem == 'mpi' else 'dcp'}.h>"]
    for codes, _ in groups(found):
        out += [".PP", ".nf"] + [escaped(line) for code in codes for line in code.split("\n")]
    out += [".fi", ".PP", "Link with \\-ldcp (pkg\\-config dcp, or find_package(dcp) of CMake).", ".SH DESCRIPTION"]
    for kind, _, comment in found:
        if kind == "text" and comment:
            out += prose(comment)
    types = [(code, comment) for kind, _, code, comment in named if kind in ("type", "macro")]
    if types:
        out.append(".SH TYPES AND CONSTANTS")
    for code, comment in types:
        if comment:
            out += prose(comment)
        out += [".PP"] + verbatim(code.split("\n"))
    functions = groups(found)
    if functions:
        out.append(".SH FUNCTIONS")
    for codes, comment in functions:
        out.append(".SS " + escaped(", ".join(name_of("function", code) for code in codes)))
        body = prose(comment)
        out += verbatim([line for code in codes for line in code.split("\n")]) + body
    out += [".SH SEE ALSO"] + [f".BR {escaped(o)} (3)," for o in others if o != title]
    out[-1] = out[-1].rstrip(",")
    out = [line for before, line in zip([""] + out, out)
           if line != ".PP" or not before.startswith((".SH", ".SS"))]
    return title, links, "\n".join(out) + "\n"


def main(headers, changelog, version, to):
    with open(changelog) as f:
        date = re.search(r"^## .*(\d{4}-\d\d-\d\d)", f.read(), re.M).group(1)
    stems = sorted(name[:-2] for name in os.listdir(headers) if name.endswith(".h"))
    others = ["dcp" if stem == "dcp" else f"dcp_{stem}" for stem in stems]
    os.makedirs(to, exist_ok=True)
    for old in os.listdir(to):
        os.remove(f"{to}/{old}")
    for stem in stems:
        with open(f"{headers}/{stem}.h") as f:
            title, links, text = page(stem, f.read(), f'.TH {{}} 3 {date} "libdcp {version}" libdcp', others)
        with open(f"{to}/{title}.3", "w") as f:
            f.write(text)
        for name in links + ["libdcp"] * (stem == "dcp"):
            if not os.path.exists(f"{to}/{name}.3") and name not in others:
                with open(f"{to}/{name}.3", "w") as f:
                    f.write(f".so man3/{title}.3\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
