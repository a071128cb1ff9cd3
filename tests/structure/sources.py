"""Shared by the checks of the structure: the product's files, their includes and functions.

Sources are read as text only: comments, strings and preprocessor lines are blanked, and braces are counted. That
suffices for this code; it is no C parser."""
import functools
import os
import re
import subprocess

AREAS = ('libdcp', 'trainer', 'reshard', 'kernels', 'examples')
SUFFIXES = ('.c', '.h', '.cu', '.cuh')
PUBLIC = 'libdcp/include/dcp'
# The folders in which an include is searched after the folder of the file itself. The root of the file's
# area comes first.
ROOTS = ('libdcp', 'libdcp/include', 'trainer', 'reshard', 'kernels/include', 'kernels')


def list_files(root, areas):
    """The project's files in these areas, relative to root (a checkout, or a folder with the same shape)."""
    git = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard', *areas],
                         capture_output=True, text=True)
    top = subprocess.run(['git', '-C', root, 'rev-parse', '--show-toplevel'],
                         capture_output=True, text=True)
    if git.returncode == 0 and os.path.realpath(top.stdout.strip()) == os.path.realpath(root):
        return [f for f in git.stdout.split('\n') if os.path.exists(os.path.join(root, f))]
    found = []
    for area in areas:
        if os.path.isfile(os.path.join(root, area)):
            found.append(area)
        for folder, _, names in os.walk(os.path.join(root, area)):
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return found


class Tree:
    """The product's files under ROOT (a checkout, or a folder with the same shape)."""

    def __init__(self, root, areas=AREAS):
        self.root = root
        self.files = sorted(f for f in list_files(root, areas) if f.endswith(SUFFIXES))
        self._known = set(self.files)

    @functools.lru_cache(maxsize=None)
    def text(self, file):
        with open(os.path.join(self.root, file), encoding='utf-8') as f:
            return f.read()

    @functools.lru_cache(maxsize=None)
    def code(self, file):
        """Returns the text with comments, strings and preprocessor lines blanked; line numbers stay the same."""
        return blank(self.text(file))

    @functools.lru_cache(maxsize=None)
    def raw_includes(self, file):
        """Returns (line number, name as written, whether in angle brackets) of each #include."""
        found = []
        for number, line in enumerate(self.text(file).split('\n'), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                found.append((number, match.group(2), match.group(1) == '<'))
        return found

    def resolve(self, file, name, angled=False):
        """Returns the product's file that an include of NAME in FILE refers to, or None (a system header)."""
        area = file.split('/')[0]
        folder = os.path.dirname(file)
        roots = [folder] + sorted(ROOTS, key=lambda r: r.split('/')[0] != area)
        if angled:
            roots = [r for r in ROOTS if r.endswith('/include')]
        for root in roots:
            path = os.path.normpath(os.path.join(root, name))
            if path in self._known:
                return path
        # folders of single libraries, which the build names
        tail = [f for f in self.files if f.endswith('/' + name) and '/alone/' not in f]
        return tail[0] if len(tail) == 1 and not angled and not name.startswith('..') else None

    @functools.lru_cache(maxsize=None)
    def includes(self, file):
        """Returns the product's files that FILE includes itself."""
        found = [self.resolve(file, name, angled) for _, name, angled in self.raw_includes(file)]
        return sorted({f for f in found if f and f != file})

    @functools.lru_cache(maxsize=None)
    def all_includes(self, file):
        """Returns the product's files that FILE includes, directly or through others."""
        seen, open_ = set(), [file]
        while open_:
            for other in self.includes(open_.pop()):
                if other not in seen:
                    seen.add(other)
                    open_.append(other)
        return seen

    @functools.lru_cache(maxsize=None)
    def functions(self, file):
        """Returns (name, is static, first line, last line) of each function defined in FILE."""
        return [(n, s, a, b) for kind, n, s, a, b in scan(self.code(file)) if kind == 'function']

    @functools.lru_cache(maxsize=None)
    def prototypes(self, file):
        """Returns the names of functions that FILE declares and does not define."""
        return [n for kind, n, s, _, _ in scan(self.code(file)) if kind == 'prototype' and not s]

    @functools.lru_cache(maxsize=None)
    def words(self, file):
        return set(re.findall(r'[A-Za-z_]\w*', self.code(file)))


def unit(file):
    """Returns the unit of the file: X.c and X.h are one unit, named by the path without its suffix."""
    return os.path.splitext(file)[0].replace('kernels/include/kernels/', 'kernels/')


def is_header(file):
    return file.endswith(('.h', '.cuh'))


def blank(text):
    def keep_lines(match):
        return re.sub(r'[^\n]', ' ', match.group(0))
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep_lines, text,
                  flags=re.S)
    return re.sub(r'(?m)^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', keep_lines, text)


def strip_attributes(chunk):
    """Removes __attribute__((..)), __launch_bounds__(..), template <..> and the like."""
    out = re.sub(r'\b(template)\s*<[^{;]*?>\s*(?=(static|__|inline|void|\w))', ' ', chunk)
    for word in ('__attribute__', '__launch_bounds__', '__declspec', '_Alignas', '__align__'):
        while True:
            at = re.search(r'\b' + word + r'\s*\(', out)
            if not at:
                break
            depth, i = 0, at.end() - 1
            while i < len(out):
                depth += {'(': 1, ')': -1}.get(out[i], 0)
                i += 1
                if depth == 0:
                    break
            out = out[:at.start()] + ' ' + out[i:]
    return out


def function_name(chunk):
    """Returns the name of the function that a declaration, without its body or semicolon, declares, or None."""
    chunk = strip_attributes(chunk).strip()
    if not chunk or re.match(r'(typedef|using|namespace|_Static_assert|static_assert)\b', chunk):
        return None
    before = chunk.split('(')[0]
    if '(' not in chunk or '=' in before:
        return None
    match = re.search(r'([A-Za-z_]\w*)\s*$', before)
    if not match or not before[:match.start()].strip():
        return None
    if match.group(1) in ('struct', 'union', 'enum', 'operator', 'sizeof'):
        return None
    return match.group(1)


def scan(code):
    """Returns (kind, name, is static, first line, last line) of everything outside all braces."""
    found, start, line, start_line = [], 0, 1, 1
    depth, opened, name, transparent = 0, None, None, 0
    for i, c in enumerate(code):
        if c == '\n':
            line += 1
        if depth == 0 and start == i and c.isspace():
            start, start_line = i + 1, line
            continue
        if c == '{':
            if depth == 0:
                chunk = code[start:i]
                if re.match(r'\s*extern\s*$', chunk) or re.match(r'\s*namespace\b', chunk):
                    transparent += 1
                    start, start_line = i + 1, line
                    continue
                name = function_name(chunk) if chunk.rstrip().endswith(')') else None
                opened = (start_line, bool(re.search(r'\bstatic\b', chunk)))
            depth += 1
        elif c == '}':
            if depth == 0:  # the end of extern "C"
                transparent -= 1
                start, start_line = i + 1, line
                continue
            depth -= 1
            if depth == 0 and name:
                found.append(('function', name, opened[1], opened[0], line))
                name, start, start_line = None, i + 1, line
        elif c == ';' and depth == 0:
            chunk = code[start:i]
            declared = None if '{' in chunk else function_name(chunk)
            if declared and not re.search(r'\(\s*\*', chunk.split(declared)[0]):
                static = bool(re.search(r'\bstatic\b', chunk))
                found.append(('prototype', declared, static, start_line, line))
            start, start_line = i + 1, line
    return found


def circles(edges):
    """Returns the strongly connected components of more than one node (Tarjan), each sorted."""
    index, low, stack, on, found, counter = {}, {}, [], set(), [], [0]

    def visit(root):
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = counter[0]
        counter[0] += 1
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = counter[0]
                    counter[0] += 1
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        part.append(stack.pop())
                        on.discard(part[-1])
                        if part[-1] == node:
                            break
                    if len(part) > 1:
                        found.append(sorted(part))
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)
