#!/usr/bin/env python3
"""No Python file has `from MODULE import *`: a reader must see where each name comes from. LEFT lists the files that are
still to be converted. It only shrinks: a file without such an import must not be in it."""
import ast, functools, os, subprocess, sys, tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import cases

LEFT = """
    tests/bench/real_model.py
    tests/bench/recover.py
    tests/cli/export_names.py
    tests/cli/export_options.py
    tests/cli/hf_transformers.py
    tests/cli/import_folder.py
    tests/corrupt/corrupt_folders.py
    tests/hosts/hosts.py
    tests/hosts/hosts_apart.py
    tests/hosts/hosts_back.py
    tests/hosts/hosts_cut.py
    tests/hosts/hosts_done.py
    tests/hosts/hosts_hung.py
    tests/hosts/hosts_killed.py
    tests/hosts/hosts_logs.py
    tests/hosts/hosts_lost.py
    tests/hosts/hosts_missing.py
    tests/hosts/hosts_mpirun.py
    tests/hosts/hosts_random.py
    tests/hosts/hosts_secret.py
    tests/hosts/hosts_slow.py
    tests/hosts/hosts_supervisor.py
    tests/hosts/hosts_train.py
    tests/hosts/hosts_undisturbed.py
    tests/hosts/hosts_world.py
    tests/slurm/slurm_alone.py
    tests/slurm/slurm_lib.py
    tests/slurm/slurm_no_controller.py
    tests/slurm/slurm_run.py
    tests/slurm/slurm_signals.py
    tests/soak/faults.py
    tests/soak/run.py
    tests/soak/soak.py
    tests/soak/soak_hosts.py
""".split()


def files():
    """The project's Python files, relative to ROOT."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.py"], capture_output=True,
                            text=True)
    if listed.returncode == 0:
        return [path for path in listed.stdout.splitlines() if os.path.exists(os.path.join(ROOT, path))]
    return [os.path.relpath(os.path.join(folder, name), ROOT) for area in ("examples", "libdcp", "tests")
            for folder, _, names in os.walk(os.path.join(ROOT, area)) for name in names if name.endswith(".py")]


def star_imports(text):
    """The lines with an `import *`."""
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
    new = {path: at for path, at in found().items() if path not in LEFT}
    assert not new, f"name what is imported: {new}"


def test_the_list_of_exceptions_shrinks():
    stale = sorted(set(LEFT) - set(found()))
    assert not stale, f"remove from LEFT, as they have no `import *`: {stale}"


def test_star_imports_are_found():
    assert star_imports("from os import path\nfrom json import *\nif 1:\n    from ..a import *\n") == [2, 4]
    assert star_imports('"""from json import *"""\nimport os  # import *\n') == []


with tempfile.TemporaryDirectory(prefix="cases.") as scratch:
    os.chdir(scratch)
    cases.main()
