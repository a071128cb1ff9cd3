#!/usr/bin/env python3
"""process_state.py LIBRARY MAP: the library's variables that belong to the whole process are those of the table
"State of the whole process" in docs/architecture.md, which says how each behaves in a child of fork."""
import re
import subprocess
import sys

SECTIONS = {'.data', '.bss', '.tdata', '.tbss'}
OF_CUDA = re.compile(r'libcudart_static_|_Z.*(__device_stub__|__cudaFatCubinHandle)')  # CUDA's runtime, and nvcc


def readelf(option, library):
    return subprocess.run(['readelf', '-W', option, library], check=True, capture_output=True, text=True).stdout


def variables(library):
    sections = dict(re.findall(r'^\s*\[\s*(\d+)\]\s+(\S+)', readelf('-S', library), flags=re.M))
    names = set()
    for line in readelf('-s', library).splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[3] in ('OBJECT', 'TLS') and sections.get(fields[6]) in SECTIONS:
            name = re.sub(r'\.\d+$', '', fields[7])  # GCC adds numbers to the names of variables in functions,
            names.add(name.rsplit('.', 1)[-1])  # and Clang puts the function's name before them
    own = {name for name in names if not name.startswith('__') and not OF_CUDA.match(name)}
    return own - {'completed'}  # the compiler's


def listed(path):
    with open(path, encoding='utf-8') as f:
        part = re.search(r'^## State of the whole process\n(.*?)^## ', f.read(), flags=re.S | re.M)
    return set(re.findall(r'^\| `(\w+)`', part.group(1) if part else '', flags=re.M))


def main():
    library, architecture = sys.argv[1:]
    found, told = variables(library), listed(architecture)
    bad = [f'{name}: not in the table of {architecture}' for name in sorted(found - told)]
    bad += [f'{name}: in the table of {architecture}, and not in the library' for name in sorted(told - found)]
    print('\n'.join(bad) or f'{len(found)} variables')
    return 1 if bad or not found else 0


sys.exit(main())
