#!/usr/bin/env python3
"""compare.py COMPILER KEPT TODAY MAP: today's headers keep the promises of the kept headers of 1.0: each function,
type, member, value and macro exists unchanged. A struct with a size may have additional members after the old
ones; all other structs have the same length. In the map, functions of 1.0 have that version."""
import os
import re
import subprocess
import sys
import tempfile

GROWS = re.compile(r'_COUNT$')  # values that are one more than the last value


def flat(text):
    return re.sub(r'\s+', ' ', text).strip()


class Headers:
    def __init__(self, compiler, folder):
        self.compiler, self.folder = compiler, folder
        raw = ''
        for name in sorted(os.listdir(folder)):
            if name.endswith('.h'):
                with open(os.path.join(folder, name), encoding='utf-8') as f:
                    raw += re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
        self.functions = {re.search(r'(dcp_\w+)\s*\(', d).group(1): flat(d)
                          for d in re.findall(r'DCP_API\s([^;{]*?\));', raw)}
        self.callbacks = {flat(d) for d in re.findall(r'typedef [^;{]*\(\*dcp_\w+\)\([^;]*\);', raw)}
        code = self.preprocess('-P')
        self.structs = {name: [flat(m) for m in body.split(';') if m.strip()] for name, body in
                        re.findall(r'typedef struct (dcp_\w+) \{(.*?)\} \1;', code, flags=re.S)}
        enums = re.findall(r'typedef enum dcp_\w+ \{(.*?)\} dcp_\w+;', code, flags=re.S)
        self.values = re.findall(r'\bDCP_\w+', ' '.join(re.sub(r'=[^,]*', '', e) for e in enums))
        self.macros = dict(re.findall(r'^#define (DCP_\w+) (.*)$', self.preprocess('-dM'), flags=re.M))

    def command(self, *more):
        return [self.compiler, '-std=gnu11', '-I', os.path.dirname(self.folder), *more]

    def preprocess(self, *more):
        return subprocess.run(self.command('-E', *more, '-x', 'c', '-'), input='#include "dcp/dcp.h"\n',
                              check=True, capture_output=True, text=True).stdout

    def measure(self, structs, values):
        """Returns {what: number}, from a program compiled with these headers: values, sizes, offsets of members."""
        lines = [f'V({name})' for name in values]
        for name in structs:
            lines.append(f'V(sizeof({name}))')
            for member in self.structs[name]:
                for part in members(member):
                    lines += [f'V(offsetof({name}, {part}))', f'V(sizeof((({name} *)0)->{part}))']
        code = ('#include <stddef.h>\n#include <stdio.h>\n#include "dcp/dcp.h"\n'
                '#define V(x) printf("%s=%lld\\n", #x, (long long)(x));\nint main(void) {\n'
                + '\n'.join(lines) + '\nreturn 0; }\n')
        with tempfile.TemporaryDirectory() as scratch:
            program = os.path.join(scratch, 'measure')
            subprocess.run(self.command('-w', '-x', 'c', '-', '-o', program), input=code, check=True,
                           text=True)
            out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        return dict(line.rsplit('=', 1) for line in out.splitlines())


def members(declaration):
    """Returns the names that it declares: a function pointer, arrays, or several in one declaration."""
    pointer = re.search(r'\(\*(\w+)\)\s*\(', declaration)
    if pointer:
        return [pointer.group(1)]
    return [re.search(r'(\w+)\s*(\[[^]]*\]\s*)*$', part).group(1) for part in declaration.split(',')]


def compare_struct(name, kept, today, old, new):
    had, has = kept.structs[name], today.structs[name]
    length = int(old[f'sizeof({name})'])
    if not had[0].startswith('size_t size'):
        reserved = [m for m in had if 'reserved' in m]  # space that later versions may use
        same = [m for m in had if m not in reserved]
        if new[f'sizeof({name})'] != str(length):
            yield f'{name}: {length} bytes for all of 1.x, now {new[f"sizeof({name})"]}'
        if has[:len(same)] != same or (not reserved and has != same):
            yield f'{name}: its members are not those of 1.0'
        return
    if has[:len(had)] != had:
        yield f'{name}: its first members are not those of 1.0'
    for member in (p for m in has[len(had):] for p in members(m)):
        if int(new[f'offsetof({name}, {member})']) < length:
            yield f'{name}.{member} lies in the padding of an old struct, whose bytes are anything'


def compare(kept, today):
    for name, declaration in kept.functions.items():
        if today.functions.get(name) != declaration:
            yield f'{name}: was "{declaration}", is "{today.functions.get(name)}"'
    for gone in kept.callbacks - today.callbacks:
        yield f'gone: {gone}'
    for name, value in kept.macros.items():
        if today.macros.get(name) != value and not GROWS.search(name):
            yield f'{name}: was "{value}", is "{today.macros.get(name)}"'
    for gone in sorted(set(kept.structs) - set(today.structs)):
        yield f'{gone}: is gone'
    structs = [name for name in kept.structs if name in today.structs]
    old = kept.measure(structs, kept.values)
    new = today.measure(structs, [v for v in kept.values if v in today.values])
    for what, number in old.items():
        grows = GROWS.search(what) or what.startswith('sizeof(dcp_') or 'reserved' in what
        if new.get(what) != number and not grows:
            yield f'{what}: was {number}, is {new.get(what)}'
    for name in structs:
        yield from compare_struct(name, kept, today, old, new)


def main():
    compiler, kept, today, version_map = sys.argv[1:]
    kept, today = Headers(compiler, kept), Headers(compiler, today)
    with open(version_map, encoding='utf-8') as f:
        node = re.search(r'DCP_1\.0 \{.*?\}', re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S),
                         flags=re.S).group(0)
    bad = list(compare(kept, today))
    bad += [f'{name}: is not in DCP_1.0 of the map' for name in kept.functions
            if not re.search(rf'\b{name};', node)]
    print('\n'.join(bad) or f'{len(kept.functions)} functions, {len(kept.structs)} structs, '
          f'{len(kept.values)} values: as in 1.0')
    return 1 if bad or not (kept.functions and kept.structs and kept.values) else 0


if __name__ == '__main__':
    sys.exit(main())
