#!/usr/bin/env python3
"""symbols.py LIBRARY MAP HEADERS...: the headers declare, the map lists and the library exports the same
functions, and each exported function has the version of its node in the map."""
import re
import subprocess
import sys


def declared(headers):
    names = set()
    for header in headers:
        with open(header, encoding='utf-8') as f:
            code = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
        names.update(re.findall(r'DCP_API\s[^;{]*?\b(dcp_\w+)\s*\(', code))
    return names


def listed(path):
    """Returns {function: its node in the map}."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
    return {name: node for node, body in re.findall(r'(DCP_[0-9.]+)\s*\{(.*?)\}', text, flags=re.S)
            for name in re.findall(r'\b(\w+);', body)}


def exported(library):
    """Returns {symbol: its version}, without the symbols of the versions themselves."""
    out = subprocess.run(['nm', '-D', '--defined-only', library], check=True, capture_output=True,
                         text=True).stdout
    symbols = [line.split()[1:] for line in out.splitlines()]
    return dict(re.match(r'([^@]+)@*(.*)', name).groups() for kind, name in symbols if kind != 'A')


def main():
    library, version_map, *headers = sys.argv[1:]
    of_map, of_library = listed(version_map), exported(library)
    bad = []
    for name in sorted(declared(headers) ^ set(of_map)):
        bad.append(f'{name}: only in the headers: add it to {version_map}' if name not in of_map
                   else f'{name}: in {version_map}, and in no header')
    for name in sorted(set(of_map) | set(of_library)):
        if of_map.get(name) != of_library.get(name):
            bad.append(f'{name}: {of_map.get(name)} in the map, {of_library.get(name)} in the library')
    print('\n'.join(bad) or f'{len(of_map)} functions')
    return 1 if bad or not of_map else 0


sys.exit(main())
