#!/usr/bin/env python3
"""The check of layers finds what it is there for: each fault, put into a copy of the sources, is told."""
import os
import shutil
import sys
import tempfile

import layers
from sources import AREAS

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def write(path, text):
    before = read(path) if os.path.exists(path) else None
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return lambda: write(path, before)


def append(root, file, text):
    """Adds the text to the file; returns what takes it back."""
    path = os.path.join(root, file)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path))
        write(path, text)
        return lambda: shutil.rmtree(os.path.dirname(path))
    return write(path, read(path) + text)


def include(root, folder, line):
    """Adds the line to a file of the folder."""
    return append(root, f'{folder}/{min(f for f in os.listdir(os.path.join(root, folder)) if f.endswith(".c"))}', line)


def edit_map(root, old, new):
    path = os.path.join(root, layers.MAP)
    text = read(path)
    assert old in text, old
    return write(path, text.replace(old, new, 1))


FAULTS = [
    ('core knows a higher folder', 'libdcp/core/',
     lambda r: include(r, 'libdcp/core', '#include "comm/comm.h"\n')),
    ('core knows MPI', 'includes mpi.h',
     lambda r: include(r, 'libdcp/core', '#include <mpi.h>\n')),
    ('core knows MPI through the public header', 'includes dcp/mpi.h',
     lambda r: include(r, 'libdcp/core', '#include "dcp/mpi.h"\n')),
    ('the trainer knows HDF5', 'includes hdf5.h',
     lambda r: include(r, 'trainer/config', '#include <hdf5.h>\n')),
    ('kernels know checkpoints', 'kernels/cpu/',
     lambda r: include(r, 'kernels/cpu', '#include <dcp/save.h>\n')),
    ('the trainer sees a private header of the library', 'trainer/config/',
     lambda r: include(r, 'trainer/config', '#include "core/box.h"\n')),
    ('the example sees one', 'examples/heat2d/',
     lambda r: include(r, 'examples/heat2d', '#include "core/box.h"\n')),
    ('an include goes upwards', '../core/box.h',
     lambda r: include(r, 'libdcp/io', '#include "../core/box.h"\n')),
    ('a folder without a row', 'libdcp/cellar has sources and no row',
     lambda r: append(r, 'libdcp/cellar/wine.c', 'int wine;\n')),
    ('a row without a folder', 'a row for libdcp/attic',
     lambda r: edit_map(r, '| `libdcp/core` |', '| `libdcp/attic` | | |\n| `libdcp/core` |')),
    ('a circle in the table', 'a circle of folders: libdcp/comm libdcp/core',
     lambda r: edit_map(r, 'no file I/O | `dcp` |', 'no file I/O | `dcp` `comm` |')),
    ('a document names a file that is gone', 'names core/gone.c',
     lambda r: append(r, layers.MAP, '\n`core/gone.c`\n')),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as root:
        for area in (*AREAS, 'docs', 'tests', 'cmake'):
            skip = shutil.ignore_patterns('corpus', 'data') if area == 'tests' else None
            shutil.copytree(os.path.join(ROOT, area), os.path.join(root, area), symlinks=True, ignore=skip)
        for name in ('README.md', 'CMakeLists.txt', 'CMakePresets.json'):
            shutil.copy(os.path.join(ROOT, name), root)
        for what, expected, spoil in [('as it is', None, lambda r: lambda: None), *FAULTS]:
            mend = spoil(root)
            found = layers.faults(root)
            told = any(expected in line for line in found) if expected else not found
            print(f'{"ok" if told else "FAILED"}: {what}')
            failed += not told
            mend()
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
