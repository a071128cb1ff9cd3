#!/usr/bin/env python3
"""A test of this folder exercises every command, option and exit status of the man pages: a line of it runs the
command with the option, or expects the status from it. Lines of shell tests named after dcp-run and dcp-train
need not name the program; Python tests call run("dcp-x", ...), or inspect("ls", ...) for dcp-inspect ls --json."""
import functools, glob, os, re
from hf_folder import SOURCE, cases


def shell_lines(path):
    """Yields lines with continuations joined and loops over words unrolled, each after the program that the file
    is named after."""
    about = re.match(r"dcp_(run|train)_", os.path.basename(path))
    words = {}
    with open(path) as f:
        lines = f.read().replace("\\\n", " ").splitlines()
    for line in lines:
        loop = re.match(r"\s*for (\w+) in ([^$]*?); do", line)
        if loop:
            words[loop[1]] = loop[2].split()
        unrolled = [line]
        for name, values in words.items():
            unrolled = [one.replace(f"${name}", value) for one in unrolled for value in values]
        if not line.lstrip().startswith("#"):
            yield from ((f"dcp-{about[1]} " if about else "") + one for one in unrolled)


def python_lines(path):
    """Yields calls, written as shell tests write them."""
    with open(path) as f:
        for line in f:
            call = re.search(r'\b(inspect|run)\("([a-z-]+)"', line)
            if call:
                status = re.search(r"\b(?:status|expect)=(\d+)", line)
                program = call[2] if call[2].startswith("dcp-") else f"dcp-inspect {call[2]}"
                yield (f"gives {status[1] if status else 0} {program} {'--json' if call[1] == 'inspect' else ''} "
                       + line.replace('"', " "))


@functools.cache
def lines_of_tests():
    lines = [line for path in sorted(glob.glob(f"{SOURCE}/tests/cli/*.sh")) for line in shell_lines(path)]
    return lines + [line for path in sorted(glob.glob(f"{SOURCE}/tests/cli/*.py")) for line in python_lines(path)]


def exercised(*patterns):
    return any(all(re.search(p, line) for p in patterns) for line in lines_of_tests())


def whole(word):
    return rf"(?<![\w-]){re.escape(word)}(?![\w-])"


def pages():
    """Yields the program and the text of each man page of section 1."""
    for page in sorted(glob.glob(f"{SOURCE}/docs/man/*.1")):
        with open(page) as f:
            yield os.path.basename(page)[:-2], f.read()


def commands():
    """Yields each command, with its subcommand if it has one, and each line of its part of the man page."""
    for program, text in pages():
        command = program
        for line in text.splitlines():
            if line.startswith((".Sh ", ".Ss ")):
                subcommand = line[4:] if re.match(r"\.Ss [a-z]+$", line) else None
                command = f"{program} {subcommand}" if subcommand else program
            yield command, line


def test_each_subcommand_is_exercised():
    for command, line in commands():
        if line == f".Ss {command.partition(' ')[2]}":
            with cases.part(command):
                assert exercised(rf"(gives|ends) \d.*{command}\b"), f"no test exercises {command}"


def test_each_option_is_exercised():
    for command, line in commands():
        for option in re.findall(r"Fl (-?[a-z][a-z-]*)", line) if line.startswith(".It Fl ") else ():
            with cases.part(f"{command} -{option}"):
                assert exercised(rf"\b{command}\b", whole("-" + option)), f"no test exercises {command} -{option}"


def test_each_exit_status_is_exercised():
    for program, text in pages():
        for status in re.findall(r"^\.It (\d+)$", text, re.M):
            with cases.part(f"{program}: {status}"):
                assert exercised(rf"(gives|ends|misuse\(\)) .*\b{status}\b|^dcp-run misuse", rf"\b{program}\b"), \
                    f"no test exercises {program}: exit status {status}"


cases.main()
