#!/usr/bin/env python3
"""Measures the structure of the product's sources: cycles, sizes, names, and the sentences of the documents.

    tests/structure/measure.py [--check] [--list] [--sample SEED] [--root DIR]

--list names what was counted. --check exits with 1 if a limit (LIMITS below) is exceeded. --sample names files, the
same ones for the same seed, for a test by hand: can their contents be guessed from docs/architecture.md?"""
import argparse
import collections
import os
import random
import re
import statistics
import sys

from sources import PUBLIC, Tree, circles, is_header, unit

PRODUCT = ('libdcp', 'trainer', 'reshard', 'kernels')
DOCS = ('README.md', 'docs/architecture.md', 'docs/CONTRIBUTING.md', 'docs/design.md', 'docs/format.md')
# Functions that other files call begin with their folder's name; these folders have another prefix.
PREFIXES = {'models': ('model',), 'programs': ('program', 'svg'), 'launcher': ('launcher', 'launch'), 'hosts': ('launcher',)}


SMALL = 25  # lines of a header

# The limits that --check enforces, with reasons.
LIMITS = {
    'files': (520, 'a reader of one idea opens one file: files that one idea needs are one'),
    'small headers': (80, 'a header of less than 25 lines belongs to its user, or to its folder'),
    'folder circles': (0, 'a folder must be understood, and tested, without those above it'),
    'file circles': (0, 'likewise a file; a circle that has a reason is named in ALLOWED with it'),
    'include depth': (0, 'more than 10 headers below each other are read by nobody'),
    'upward includes': (0, 'includes are written from the root of their area'),
    'types twice': (0, 'a type has one meaning'),
    'headers twice': (0, 'so does the name of a header'),
    'static names': (0, 'a name in three and more files is a word too general'),
    'long files': (0, 'a file of more than 600 lines holds several concepts'),
    'long functions': (0, 'a function of more than 60 lines does several things'),
}
# Exceptions, by the beginning of the name, each with its reason.
ALLOWED = {
    'headers twice': {'fail.h': "programs/fail.h is core's for programs"},
}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def include_graph(tree, node):
    """Returns edges between nodes (units, or folders), by includes."""
    edges = collections.defaultdict(set)
    for file in tree.files:
        for other in tree.includes(file):
            if node(file) != node(other):
                edges[node(file)].add(node(other))
    return edges


def definitions(tree):
    """Returns {name of a function that is not static: the files that define it}."""
    found = collections.defaultdict(set)
    for file in tree.files:
        for name, static, _, _ in tree.functions(file):
            if not static:
                found[name].add(file)
    return found


def call_graph(tree, node):
    """Returns edges from a unit that names a function of a header that it includes to the unit that defines the
    function."""
    defined = definitions(tree)
    edges = collections.defaultdict(set)
    for file in tree.files:
        if is_header(file):
            continue
        seen = tree.all_includes(file)
        own = {name for name, _, _, _ in tree.functions(file)}
        for header in seen:
            if not is_header(header):
                continue
            for name in tree.prototypes(header):
                if name in own or name not in tree.words(file):
                    continue
                for there in nearest(header, defined.get(name, ())):
                    if node(there) != node(file):
                        edges[node(file)].add(node(there))
    return edges


def nearest(header, files):
    """If there are several definitions (a program's, a device's), returns those nearest to the header."""
    if len(files) < 2:
        return files
    share = {f: (os.path.dirname(f) == os.path.dirname(header), len(os.path.commonpath([header, f])))
             for f in files}
    best = max(share.values())
    return [f for f in files if share[f] == best]


def join(*graphs):
    edges = collections.defaultdict(set)
    for graph in graphs:
        for a, to in graph.items():
            edges[a] |= to
    return edges


def within_folders(edges):
    return {a: {b for b in to if os.path.dirname(a) == os.path.dirname(b)} for a, to in edges.items()}


def depths(tree):
    """Returns the longest chain of the product's headers from each .c, as a list of files."""
    memo = {}

    def chain(file, above=()):
        if file in memo:
            return memo[file]
        best = []
        for other in tree.includes(file):
            if other not in above:
                best = max(best, chain(other, above + (file,)), key=len)
        memo[file] = [file] + best
        return memo[file]
    return {f: chain(f) for f in tree.files if not is_header(f)}


def private_headers(tree):
    return [f for f in tree.files if is_header(f) and not f.startswith(PUBLIC)]


def statics(tree):
    files = collections.defaultdict(set)
    for file in tree.files:
        for name, static, _, _ in tree.functions(file):
            if static:
                files[name].add(file)
    found = {n: sorted(f) for n, f in files.items() if len(f) >= 3}
    return dict(sorted(found.items(), key=lambda i: (-len(i[1]), i[0])))


def twice(pairs):
    """Returns the names with more than one file, from (name, file) pairs."""
    files = collections.defaultdict(set)
    for name, file in pairs:
        files[name].add(file)
    return {n: sorted(f) for n, f in sorted(files.items()) if len(f) > 1}


def types(tree):
    for file in tree.files:
        code = tree.code(file)
        for name in re.findall(r'\b(?:struct|union|enum)\s+([A-Za-z_]\w*)\s*\{', code):
            yield name, file
        for name in re.findall(r'(?m)^\}\s*([A-Za-z_]\w*)\s*;', code):
            yield name, file


def prefixes(file):
    folder = os.path.basename(os.path.dirname(file))
    # a file beside its area's folders, or of the folder that says nothing but that all share it
    if os.path.dirname(file) in PRODUCT or folder == 'common':
        return (os.path.splitext(os.path.basename(file))[0].replace('-', '_'),)
    return PREFIXES.get(folder, (folder,))


def unprefixed(tree):
    found = []
    for header in private_headers(tree):
        if header.startswith('kernels/') or header == 'libdcp/comm/alone/mpi.h':
            continue  # as in kernels.h; MPI's own names
        names = set(tree.prototypes(header)) | {n for n, _, _, _ in tree.functions(header)}
        for name in sorted(names):
            if not name.startswith(prefixes(header)) and not name.startswith('dcp_'):
                found.append((header, name))
    return found


def single_users(tree):
    """Returns units whose header is included by only one other unit, which is in the same folder."""
    users = collections.defaultdict(set)
    for file in tree.files:
        for other in tree.includes(file):
            if unit(other) != unit(file):
                users[unit(other)].add(unit(file))
    return sorted((unit(h), next(iter(users[unit(h)]))) for h in private_headers(tree)
                  if len(users[unit(h)]) == 1
                  and os.path.dirname(next(iter(users[unit(h)]))) == os.path.dirname(h))


def sentences(text):
    """Returns the lengths in words of the sentences in a document's prose: no code, tables, or list marks."""
    text = re.sub(r'(?s)```.*?```', '', text)
    lines = [l for l in text.split('\n') if not re.match(r' {4,}\S|\||#|!\[', l)]
    text = '\n'.join(re.sub(r'^\s*[-*] ', '\n\n', l) for l in lines)
    found = []
    for paragraph in re.split(r'\n\s*\n', text):
        for sentence in re.split(r'(?<=[.?!])["\')]*\s+', ' '.join(paragraph.split())):
            words = re.findall(r'\S*\w\S*', sentence)
            if words:
                found.append((len(words), sentence))
    return found


def show(what, names, listed, say=str):
    print(f'{what}: {len(names)}')
    if listed:
        for name in names:
            print('    ' + say(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--check', action='store_true', help='exit 1 where a limit is broken')
    parser.add_argument('--list', action='store_true', help='name what was counted')
    parser.add_argument('--sample', type=int, metavar='SEED', help='name fifteen files taken at random')
    parser.add_argument('--root', default=os.path.join(os.path.dirname(__file__), '..', '..'))
    args = parser.parse_args()
    tree = Tree(os.path.normpath(args.root), PRODUCT)
    if args.sample is not None:
        print('\n'.join(sorted(random.Random(args.sample).sample(tree.files, 15))))
        return 0
    measured = measure(tree, args.list)
    for name in DOCS:
        path = os.path.join(tree.root, name)
        if os.path.exists(path):
            with open(path, encoding='utf-8') as f:
                text = f.read()
            lengths = [n for n, _ in sentences(text)]
            print(f'{name}: {len(text.split())} words; sentences: median '
                  f'{statistics.median(lengths):.0f}, p90 {percentile(lengths, 0.9)}, max {max(lengths)} words')
    return check(measured) if args.check else 0


def measure(tree, listed):
    """Prints all figures; returns those that LIMITS limits."""
    folder = os.path.dirname
    lines = {f: tree.text(f).count('\n') for f in tree.files}
    lengths = [(b - a + 1, n, f) for f in tree.files for n, _, a, b in tree.functions(f)]
    print(f'files: {len(tree.files)} in {len({folder(f) for f in tree.files})} folders')
    others = sum(Tree(tree.root, ('examples',)).text(f).count('\n') for f in Tree(tree.root, ('examples',)).files)
    print(f'lines: {sum(lines.values())}; with examples {sum(lines.values()) + others}')
    print('lines by area: ' + ', '.join(
        f'{a} {sum(n for f, n in lines.items() if f.startswith(a + "/"))}' for a in PRODUCT))
    sizes = list(lines.values())
    print(f'lines of a file: median {statistics.median(sizes):.0f}, p90 {percentile(sizes, 0.9)}, max {max(sizes)}')
    only = [n for n, _, _ in lengths]
    print(f'functions: {len(only)}; lines: median {statistics.median(only):.0f}, '
          f'p90 {percentile(only, 0.9)}, max {max(only)} ({max(lengths)[1]} in {max(lengths)[2]})')

    by_include, by_call = include_graph(tree, unit), call_graph(tree, unit)
    folders_include, folders_call = include_graph(tree, folder), call_graph(tree, folder)
    join_circle = ' '.join
    folder_circles = circles(join(folders_include, folders_call))
    file_circles = circles(within_folders(join(by_include, by_call)))
    show('circles between folders, by includes', circles(folders_include), True, join_circle)
    show('circles between folders, by includes and calls', folder_circles, True, join_circle)
    show('circles between files of a folder, by includes', circles(within_folders(by_include)), listed, join_circle)
    show('circles between files of a folder, by includes and calls', file_circles, listed, join_circle)
    print(f'files in such circles: {sum(len(c) for c in file_circles)}')
    all_circles = circles(join(by_include, by_call))
    print(f'files in circles of the whole product: {sum(len(c) for c in all_circles)} in {len(all_circles)} circles')

    show(f'private headers of less than {SMALL} lines', [h for h in private_headers(tree) if lines[h] < SMALL], listed)

    chains = depths(tree)
    deep = [len(c) - 1 for c in chains.values()]
    longest = max(chains.values(), key=len)
    print(f'include depth: median {statistics.median(deep):.0f}, p90 {percentile(deep, 0.9)}, max {max(deep)}: '
          + ' > '.join(longest))
    up = [f'{f}:{n}' for f in tree.files for n, name, _ in tree.raw_includes(f) if '../' in name]
    show('includes with ../', up, listed)
    named = statics(tree)
    show('static names in three and more files', list(named.items()), listed,
         lambda i: f'{i[0]} {len(i[1])}: {" ".join(i[1])}')
    bases = twice((os.path.basename(h), h) for h in private_headers(tree))
    show('header base names used twice', list(bases.items()), listed, lambda i: f'{i[0]}: {" ".join(i[1])}')
    doubled = twice(types(tree))
    show('type names defined twice', list(doubled.items()), listed, lambda i: f'{i[0]}: {" ".join(i[1])}')
    bare = unprefixed(tree)
    show("functions of private headers without their folder's name", bare, listed, ' '.join)
    alone = single_users(tree)
    show('files that serve one other file of their folder', alone, listed, ' for '.join)
    big = [f for f, n in lines.items() if n > 600]
    return {'folder circles': [join_circle(c) for c in folder_circles],
            'file circles': [join_circle(c) for c in file_circles],
            'files': tree.files,
            'small headers': [h for h in private_headers(tree) if lines[h] < SMALL],
            'include depth': [' > '.join(c) for c in chains.values() if len(c) - 1 > 10],
            'upward includes': up, 'types twice': list(doubled),
            'headers twice': list(bases), 'long files': big,
            'static names': list(named), 'long functions': [f'{n} in {f}' for k, n, f in lengths if k > 60]}


def check(measured):
    """Reports the limits that are exceeded; returns the exit status."""
    broken = 0
    for what, (limit, why) in LIMITS.items():
        found = [x for x in measured[what] if not any(x.startswith(a) for a in ALLOWED.get(what, ()))]
        if len(found) > limit:
            print(f'FAILED: {what}: {len(found)}, at most {limit}: {why}')
            for name in found:
                print('    ' + name)
            broken = 1
    return broken


if __name__ == '__main__':
    sys.exit(main())
