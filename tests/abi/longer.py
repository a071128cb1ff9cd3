#!/usr/bin/env python3
"""longer.py HEADERS OUT: copies the public headers, and adds members at the end of every struct that begins with
its size, as later versions will."""
import os
import re
import sys

SIZED = re.compile(r'(typedef struct (dcp_\w+) \{\s*size_t size;.*?)(\n\} \2;)', flags=re.S)


def main():
    headers, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    longer = 0
    for name in sorted(os.listdir(headers)):
        if not name.endswith('.h'):
            continue
        with open(os.path.join(headers, name), encoding='utf-8') as f:
            text, n = SIZED.subn(r'\1\n    unsigned long long appended[8];\3', f.read())
        longer += n
        with open(os.path.join(out, name), 'w', encoding='utf-8') as f:
            f.write(text)
    print(f'{longer} structs are longer')
    return 0 if longer else 1


sys.exit(main())
