#!/usr/bin/env python3
"""The check of layers finds what it must find: each fault that is put into a copy of the sources is reported."""
import os
import shutil
import sys
import tempfile

import layers
from sources import AREAS

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'support'))
import cases


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def write(path, text):
    before = read(path) if os.path.exists(path) else None
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return lambda: write(path, before)


def append(root, file, text):
    """Adds the text to the file; returns a function that removes it."""
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


@cases.shared
def copy():
    """Makes a copy of the sources. Returns its folder."""
    for area in (*AREAS, 'docs', 'tests', 'cmake'):
        skip = shutil.ignore_patterns('corpus', 'data') if area == 'tests' else None
        shutil.copytree(os.path.join(ROOT, area), area, symlinks=True, ignore=skip)
    for name in ('README.md', 'CMakeLists.txt', 'CMakePresets.json'):
        shutil.copy(os.path.join(ROOT, name), '.')
    return os.getcwd()


def check_told(expected, spoil):
    """The fault that `spoil` makes in the copy is reported with a message that contains the text. Removes the
    fault."""
    cases.at_end(spoil(copy()))
    found = layers.faults(copy())
    assert any(expected in line for line in found), found


def test_no_fault_in_the_sources_as_they_are():
    assert not layers.faults(copy())


def test_core_knows_a_higher_folder():
    check_told('libdcp/core/',
               lambda r: include(r, 'libdcp/core', '#include "comm/comm.h"\n'))


def test_core_knows_mpi():
    check_told('includes mpi.h',
               lambda r: include(r, 'libdcp/core', '#include <mpi.h>\n'))


def test_core_knows_mpi_through_the_public_header():
    check_told('includes dcp/mpi.h',
               lambda r: include(r, 'libdcp/core', '#include "dcp/mpi.h"\n'))


def test_the_trainer_knows_hdf5():
    check_told('includes hdf5.h',
               lambda r: include(r, 'trainer/config', '#include <hdf5.h>\n'))


def test_kernels_know_checkpoints():
    check_told('kernels/cpu/',
               lambda r: include(r, 'kernels/cpu', '#include <dcp/save.h>\n'))


def test_the_trainer_sees_a_private_header_of_the_library():
    check_told('trainer/config/',
               lambda r: include(r, 'trainer/config', '#include "core/box.h"\n'))


def test_an_example_sees_a_private_header_of_the_library():
    check_told('examples/heat2d/',
               lambda r: include(r, 'examples/heat2d', '#include "core/box.h"\n'))


def test_an_include_goes_upwards():
    check_told('../core/box.h',
               lambda r: include(r, 'libdcp/io', '#include "../core/box.h"\n'))


def test_a_folder_without_a_row():
    check_told('libdcp/cellar has sources and no row',
               lambda r: append(r, 'libdcp/cellar/wine.c', 'int wine;\n'))


def test_a_row_without_a_folder():
    check_told('a row for libdcp/attic',
               lambda r: edit_map(r, '| `libdcp/core` |', '| `libdcp/attic` | | |\n| `libdcp/core` |'))


def test_a_circle_in_the_table():
    check_told('a circle of folders: libdcp/comm libdcp/core',
               lambda r: edit_map(r, 'no file I/O | `dcp` |', 'no file I/O | `dcp` `comm` |'))


def test_a_document_names_a_file_that_is_gone():
    check_told('names core/gone.c',
               lambda r: append(r, layers.MAP, '\n`core/gone.c`\n'))


with tempfile.TemporaryDirectory(prefix='layers.') as scratch:
    os.chdir(scratch)
    cases.main()
