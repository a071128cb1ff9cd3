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


def edit_map(root, old, new):
    path = os.path.join(root, layers.MAP)
    text = read(path)
    assert old in text, old
    return write(path, text.replace(old, new, 1))


FAULTS = [
    ('core knows a higher folder', 'libdcp/core/box.c:',
     lambda r: append(r, 'libdcp/core/box.c', '#include "comm/comm.h"\n')),
    ('core knows MPI', 'includes mpi.h',
     lambda r: append(r, 'libdcp/core/box.c', '#include <mpi.h>\n')),
    ('core knows MPI through the public header', 'includes dcp/mpi.h',
     lambda r: append(r, 'libdcp/core/box.c', '#include "dcp/mpi.h"\n')),
    ('the trainer knows HDF5', 'includes hdf5.h',
     lambda r: append(r, 'trainer/dcp-train.c', '#include <hdf5.h>\n')),
    ('kernels know checkpoints', 'kernels/registry.c:',
     lambda r: append(r, 'kernels/registry.c', '#include <dcp/save.h>\n')),
    ('the trainer sees a private header of the library', 'trainer/config/config.c:',
     lambda r: append(r, 'trainer/config/config.c', '#include "core/box.h"\n')),
    ('the example sees one', 'examples/heat2d/heat2d.c:',
     lambda r: append(r, 'examples/heat2d/heat2d.c', '#include "core/box.h"\n')),
    ('an include goes upwards', '../core/box.h',
     lambda r: append(r, 'libdcp/io/file.c', '#include "../core/box.h"\n')),
    ('a folder without a row', 'libdcp/cellar has sources and no row',
     lambda r: append(r, 'libdcp/cellar/wine.c', 'int wine;\n')),
    ('a row without a folder', 'a row for libdcp/attic',
     lambda r: edit_map(r, '| `libdcp/core` |', '| `libdcp/attic` | | |\n| `libdcp/core` |')),
    ('a circle in the table', 'a circle of folders: libdcp/comm libdcp/core',
     lambda r: edit_map(r, 'no I/O | `dcp` |', 'no I/O | `dcp` `comm` |')),
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
