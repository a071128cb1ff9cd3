#!/usr/bin/env python3
"""No Python file has `from MODULE import *`: a reader must see where each name comes from."""
import ast, functools, os, sys, tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import cases
import sources


def files():
    """Returns the project's Python files, relative to ROOT."""
    return [path for path in sources.list_files(ROOT, ("docs", "examples", "libdcp", "tests")) if path.endswith(".py")]


def star_imports(text):
    """Returns the lines with an `import *`."""
    if "import *" not in text:
        return []
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)
            and any(alias.name == "*" for alias in node.names)]


@functools.cache
def found():
    """Maps the files with an `import *` to its lines."""
    lines = {}
    for path in files():
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            lines[path] = star_imports(f.read())
    assert len(lines) > 100, f"only {len(lines)} files"
    return {path: at for path, at in lines.items() if at}


def test_no_file_imports_everything():
    assert not found(), f"name what is imported: {found()}"


def test_star_imports_are_found():
    assert star_imports("from os import path\nfrom json import *\nif 1:\n    from ..a import *\n") == [2, 4]
    assert star_imports('"""from json import *"""\nimport os  # import *\n') == []


with tempfile.TemporaryDirectory(prefix="cases.") as scratch:
    os.chdir(scratch)
    cases.main()
