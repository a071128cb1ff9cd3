#!/usr/bin/env python3
"""README.md and docs/design.md stay short, and docs/index.md links to every document.

    tests/structure/documents.py [ROOT]

Words are counted as `wc -w` counts them, code included. Exit status 1, and a line for each fault. Without ROOT the
check is first made on documents with faults, which it has to find."""
import pathlib
import re
import sys
import tempfile

MOST_WORDS = {
    'README.md': 900,  # a newcomer reads all of it
    'docs/design.md': 5000,  # a new maintainer reads all of it
}
INDEX = 'docs/index.md'
ROOT = pathlib.Path(__file__).resolve().parents[2]


def faults(root):
    for name, most in MOST_WORDS.items():
        words = len((root / name).read_text(encoding='utf-8').split())
        if words > most:
            yield f'{name} has {words} words, {most} at most: move something to another document of docs/'
    links = re.findall(r'\]\(([^)#]+)', (root / INDEX).read_text(encoding='utf-8'))
    linked = {(root / 'docs' / link).resolve() for link in links}
    for document in [root / 'README.md', *sorted((root / 'docs').glob('*.md'))]:
        if document.name != 'index.md' and document.resolve() not in linked:
            yield f'{INDEX} has no link to {document.relative_to(root)}'


def check_of_faults():
    """Yields an error for each fault that is not found in documents with it, or found in documents without faults."""
    good = {'README.md': 'word ' * 900, 'docs/design.md': 'word ' * 5000,
            INDEX: '[README](../README.md#install) [design](design.md)'}
    bad = [({}, []),
           ({'README.md': 'word ' * 901}, ['README.md has 901 words']),
           ({'docs/design.md': 'word ' * 5001}, ['docs/design.md has 5001 words']),
           ({'docs/more.md': ''}, ['docs/index.md has no link to docs/more.md']),
           ({INDEX: 'README.md design.md'}, ['docs/index.md has no link to README.md',
                                             'docs/index.md has no link to docs/design.md'])]
    for changed, expected in bad:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / 'docs').mkdir()
            for name, text in (good | changed).items():
                (pathlib.Path(folder) / name).write_text(text, encoding='utf-8')
            found = list(faults(pathlib.Path(folder)))
        if len(found) != len(expected) or not all(map(str.startswith, found, expected)):
            yield f'the check finds {found} in documents with these faults: {expected}'


def main():
    found = list(faults(pathlib.Path(sys.argv[1]))) if sys.argv[1:] else [*check_of_faults(), *faults(ROOT)]
    print('\n'.join(found), end='\n' if found else '')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
