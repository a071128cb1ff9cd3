#!/usr/bin/env python3
"""Compares every include of the product with the tables of docs/architecture.md.

    tests/structure/layers.py [--unused] [ROOT]

`| folder | holds | may include |` has a row for each folder with sources, and no other rows; `| header | of | included
by |` says which folders may use a library. A folder may include itself and the folders that its row names. The arrows
of the table form no cycle, no include goes upwards by ../, and every file that the documents name exists. Exit status
1, and a line for each fault. --unused also names arrows that no include uses."""
import collections
import fnmatch
import os
import re
import sys

from sources import AREAS, ROOTS, Tree, circles

MAP = 'docs/architecture.md'
NAMING = (MAP, 'docs/CONTRIBUTING.md', 'docs/design.md')
# Folders whose public interface is written without its folder.
SHORT = {'dcp': 'libdcp/include/dcp', 'kernels.h': 'kernels/include/kernels'}
# Short names of folders with public headers.
ROOTED = ('libdcp', 'reshard', 'kernels', 'trainer')


def rows(text, *heads):
    """Returns the rows under all tables with that head, as lists of cells."""
    found, inside = [], False
    for line in text.split('\n'):
        cells = [c.strip() for c in line.strip().strip('|').split('|')] if line.startswith('|') else None
        if cells and [c.lower() for c in cells] == list(heads):
            inside = True
        elif not cells:
            inside = False
        elif inside and not re.fullmatch(r':?-+:?', cells[0]):
            found.append(cells)
    return found


def names(cell):
    return re.findall(r'`([^`]+)`', cell)


def read_map(text):
    """Returns {folder: the folders that it may include}, and the second table's (patterns, folders)."""
    table = rows(text, 'folder', 'holds', 'may include')
    folders = [names(r[0])[0] for r in table]
    arrows = collections.OrderedDict()
    for row, folder in zip(table, folders):
        area = folder.split('/')[0]
        arrows[folder] = {SHORT.get(n) or (f'{area}/{n}' if f'{area}/{n}' in folders else n)
                          for n in names(row[2])}
    libraries = []
    for row in rows(text, 'header', 'of', 'included by'):
        allowed = {SHORT.get(n, n) for n in names(row[2])}
        libraries.append((names(row[0]), allowed))
    return arrows, libraries


def check_table(arrows, tree):
    there = {os.path.dirname(f) for f in tree.files}
    for folder in sorted(there - set(arrows)):
        yield f'{folder} has sources and no row in {MAP}'
    for folder in arrows:
        if folder not in there:
            yield f'{MAP} has a row for {folder}, where no sources are'
        for other in sorted(arrows[folder] - set(arrows)):
            yield f'{MAP}: {folder} may include {other}, which has no row'
    for circle in circles(arrows):
        yield f'{MAP}: a circle of folders: {" ".join(circle)}'


def check_includes(arrows, libraries, tree):
    for file in tree.files:
        folder, area = os.path.dirname(file), file.split('/')[0]
        for line, name, angled in tree.raw_includes(file):
            where = f'{file}:{line}: includes {name}'
            if '../' in name:
                yield f'{where}: write it from {area}/'
            other = tree.resolve(file, name, angled)
            for patterns, allowed in libraries:
                if not any(name == p or not other and fnmatch.fnmatch(name, p) for p in patterns):
                    continue
                if not any(fnmatch.fnmatch(folder, a) for a in allowed):
                    yield f'{where}, which is for {", ".join(sorted(allowed))}'
            if not other:
                if not angled:
                    yield f'{where}, which is no file of the product'
                continue
            there = os.path.dirname(other)
            if there != folder and there not in arrows.get(folder, ()):
                yield f'{where} of {there}, an arrow that {MAP} does not have'
            if not angled and area in ROOTED and other not in [f'{root}/{name}' for root in ROOTS]:
                yield f'{where}: write it from {area}/'


def unused(arrows, tree):
    """Returns the arrows that no include uses, which the table may drop."""
    taken = {(os.path.dirname(f), os.path.dirname(g)) for f in tree.files for g in tree.includes(f)}
    return [f'{a} -> {b}' for a, to in arrows.items() for b in sorted(to) if (a, b) not in taken]


def check_names(tree):
    """Every source or script that a document names in backticks exists."""
    for document in NAMING:
        path = os.path.join(tree.root, document)
        if not os.path.exists(path):
            continue
        with open(path, encoding='utf-8') as f:
            text = f.read()
        libraries = {n for row in rows(text, 'header', 'of', 'included by') for n in names(row[0])}
        for name in re.findall(r'`([\w./-]+\.(?:c|h|cu|cuh|py|sh|cmake|txt|md))`', text):
            roots = ('', *AREAS, 'libdcp/include', 'kernels/include', 'tests', 'docs')
            if name not in libraries and not any(os.path.exists(os.path.join(tree.root, r, name)) for r in roots) and not (
                    '/' not in name and any(os.path.basename(f) == name for f in tree.files)):
                yield f'{document} names {name}, which is not there'


def faults(root):
    tree = Tree(root, AREAS)
    with open(os.path.join(root, MAP), encoding='utf-8') as f:
        arrows, libraries = read_map(f.read())
    if not arrows or not libraries:
        return [f'{MAP} has no tables to read']
    return [*check_table(arrows, tree), *check_includes(arrows, libraries, tree), *check_names(tree)]


def main():
    given = [a for a in sys.argv[1:] if a != '--unused']
    root = given[0] if given else os.path.join(os.path.dirname(__file__), '..', '..')
    found = faults(os.path.normpath(root))
    for line in found:
        print(line)
    if '--unused' in sys.argv:
        with open(os.path.join(root, MAP), encoding='utf-8') as f:
            print('\n'.join(unused(read_map(f.read())[0], Tree(os.path.normpath(root), AREAS))))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
