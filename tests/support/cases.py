"""Runs the cases of a test script: its functions named test_*, in the order of their definition.

    file.py                  runs all cases; a failure does not stop the ones after it
    file.py NAME...          runs the cases whose names match; * and ? are wildcards
    file.py --list           prints the names of the cases
    DCP_CASES="NAME..." ctest -R FILE     selects cases of a script that ctest starts

Each case runs in an empty folder of its own below the current one, and its changes to os.environ are undone.
Exit status: 0, 1 if a case failed, 77 if all were skipped, 2 if no case has a given name.
"""
import atexit, contextlib, fnmatch, functools, os, shutil, sys, time, traceback

base = os.getcwd()
case_ends = contextlib.ExitStack()  # calls what at_end() was given; outside cases, when the program ends
atexit.register(case_ends.close)
failed_parts = []


class Skipped(Exception):
    """Ends the current case without a failure; the argument is the reason."""


def skip(reason):
    raise Skipped(reason)


def at_end(function, *args):
    """Calls function(*args) when the current case ends, also if it fails. The last one given is called first."""
    case_ends.callback(function, *args)


@contextlib.contextmanager
def part(name):
    """Part of a case, as a row of a table: if it fails, the case goes on, and fails at its end."""
    try:
        yield
    except Skipped:
        raise
    except Exception:
        failed_parts.append(name)
        print(f"failed part: {name}\n{traceback.format_exc()}", end="", flush=True)


@contextlib.contextmanager
def folder(name):
    """Makes a folder below the first one, and is in it while the block runs."""
    path, before = os.path.join(base, name), os.getcwd()
    os.mkdir(path)
    os.chdir(path)
    try:
        yield path
    finally:
        os.chdir(before)


def shared(function):
    """Decorator for what several cases need: the function runs once, when first called, in a folder of its own. Every
    call returns the same result or raises the same exception. use() also copies the folder."""
    @functools.cache
    def once():
        with folder(function.__name__) as path:
            try:
                return path, function(), None
            except Exception as e:
                return path, None, e

    @functools.wraps(function)
    def result():
        result.folder, value, failure = once()
        if failure:
            raise failure
        return value
    return result


def use(setup):
    """Copies the folder of a @shared function into the current folder. Returns what the function returned."""
    result = setup()
    shutil.copytree(setup.folder, ".", symlinks=True, dirs_exist_ok=True)
    return result


def run(name, case):
    """Runs one case, and prints and returns its result: "ok", "skipped" or "FAIL"."""
    global case_ends
    environment, start, result, reason = dict(os.environ), time.monotonic(), "ok", ""
    failed_parts.clear()
    try:
        with folder(name), contextlib.ExitStack() as case_ends:
            case()
    except Skipped as e:
        result, reason = "skipped", f": {e}"
    except (Exception, SystemExit):
        failed_parts.append(name)
        print(traceback.format_exc(), end="", flush=True)
    os.environ.clear()
    os.environ.update(environment)
    result = "FAIL" if failed_parts else result
    print(f"{result} {name} ({time.monotonic() - start:.1f} s){reason}", flush=True)
    return result


def main():
    """Runs the cases of the script that was started, as its arguments say, and exits."""
    global base
    base = os.getcwd()
    found = {name: value for name, value in vars(sys.modules["__main__"]).items()
             if name.startswith("test_") and callable(value)}
    if sys.argv[1:] == ["--list"]:
        print(*found, sep="\n")
        sys.exit(0)
    patterns = sys.argv[1:] or os.environ.get("DCP_CASES", "").split() or ["*"]
    for pattern in patterns:
        if not fnmatch.filter(found, pattern):
            sys.stderr.write(f"no case is named {pattern}; --list prints the names\n")
            sys.exit(2)
    results = [run(name, case) for name, case in found.items()
               if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    sys.exit(1 if "FAIL" in results else 77 if set(results) == {"skipped"} else 0)
