#!/usr/bin/env python3
"""Comments and documents avoid phrases that readers of this project had to read twice: a comment that begins without its
subject ("Of a dataset: ..."), "a rank" for "per rank", and others of PATTERNS. CONTRIBUTING.md asks for plain English; a
program finds only what always is wrong.

    tests/structure/prose.py [FILE...]

Exit status 1, and a line for each phrase. Without FILE, the check is first made on sentences that it has to find."""
import pathlib
import re
import sys

import sources

ROOT = pathlib.Path(__file__).resolve().parents[2]
PER = r"rank|host|node|file|tensor|step|process|box|store|group|parameter"
# a pattern, the text to write instead, sentences that match, and sentences that do not
PATTERNS = [
    (r"(?:^|[.:] )(?:Of (?:a|an|each|all|its|this|those|what)|(?:That|Those) of)\b", "begin with the subject",
     ["Of a dataset: its first byte.", "That of the store."], ["Of 3 ranks, two fail.", "The offset of a dataset."]),
    (r"(?:^|[.:] )The same(?:,| of\b| for\b| as of\b)", "say what it does",
     ["The same, on all ranks.", "The same of a list."], ["The same bits on any number of ranks."]),
    (rf"\b(?:one|[0-9][0-9.,]* (?:bytes|elements|messages|calls|files|[KMGT]i?B)) an? (?:{PER})\b", "write \"per\"",
     ["16 MiB a rank", "one a host", "150 bytes a tensor"],
     ["one of a rank's files", "16 MiB per rank", "how many bytes a group has"]),
    (r"\b(?:where|if) (?:it|there|they) (?:is|are) there\b", "write \"exists\" or \"is installed\"",
     ["torch is used where it is there"], ["if there are several"]),
    (r"\bwants? (?:Debian|HDF5|MPI|a page|pages|memory|root)\b", "write \"requires\"", ["Both want Debian 12."],
     ["what it requires"]),
    (r"\bnothing happens where\b", "write \"does nothing if\"", ["nothing happens where it is none"], []),
    (r"(?:^|[.:] )(?:0|1|NULL|-1|DCP_[A-Z_]+) where\b", "write \"... if\"", ["0 where there is none", "NULL where it fails"],
     ["the place where it fails"]),
]
COMMENT = {".c": r"/\*.*?\*/", ".h": r"/\*.*?\*/", ".cu": r"/\*.*?\*/", ".cuh": r"/\*.*?\*/", ".hpp": r"/\*.*?\*/|//[^\n]*"}
WHOLE = (".md", ".1", ".3", ".5", ".7")
AREAS = ("libdcp", "trainer", "reshard", "kernels", "examples", "docs", "README.md")
HISTORY = ("docs/changelog.md",)


def texts(path):
    """Yields the comments of a source, or the paragraphs of a document, each with its first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in COMMENT:
        for found in re.finditer(COMMENT[path.suffix], text, re.S):
            words = re.sub(r"^\s*(?:/?\*+/?|//)", " ", found[0], flags=re.M).removesuffix("*/")
            for part in re.split(r"\n\s*\n", words):
                yield text.count("\n", 0, found.start()) + 1, " ".join(part.split())
    elif path.suffix in WHOLE:
        line = 1
        for part in re.split(r"\n[ \t]*\n", text):
            yield line, " ".join(part.split())
            line += part.count("\n") + 2


def faults_of(text):
    for pattern, instead, _, _ in PATTERNS:
        for found in re.finditer(pattern, text):
            yield f"\"{text[max(0, found.start() - 10):found.end() + 30]}\": {instead}"


def documents_and_sources():
    return [ROOT / name for name in sources.list_files(ROOT, AREAS) if name not in HISTORY]


def check_of_patterns():
    for pattern, _, bad, good in PATTERNS:
        for sentence in bad:
            if not re.search(pattern, sentence):
                yield f"the check does not find: {sentence}"
        for sentence in good:
            if list(faults_of(sentence)):
                yield f"the check finds a fault in: {sentence}"


def main():
    given = [pathlib.Path(name) for name in sys.argv[1:]]
    found = [] if given else list(check_of_patterns())
    for path in given or documents_and_sources():
        if path.suffix in COMMENT or path.suffix in WHOLE:
            found += [f"{path}:{line}: {fault}" for line, text in texts(path) for fault in faults_of(text)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
