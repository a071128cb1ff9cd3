#!/usr/bin/env python3
"""Every command, option and exit status of the man pages is exercised by a test of this folder: a line
of it runs the command with the option, or expects the status of it. In shell tests named after dcp-run
and dcp-train lines need not name the program; Python tests call run("dcp-x", ...), or inspect("ls", ...)
for dcp-inspect ls --json."""
import glob, os, re, sys

SOURCE = os.environ["DCP_SOURCE"]
missing = []


def shell_lines(path):
    """Continued lines joined, loops over words unrolled; in front the program the file is named after."""
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
    """Calls, written as the shell tests have them."""
    with open(path) as f:
        for line in f:
            call = re.search(r'\b(inspect|run)\("([a-z-]+)"', line)
            if call:
                status = re.search(r"\b(?:status|expect)=(\d+)", line)
                program = call[2] if call[2].startswith("dcp-") else f"dcp-inspect {call[2]}"
                yield (f"gives {status[1] if status else 0} {program} {'--json' if call[1] == 'inspect' else ''} "
                       + line.replace('"', " "))


LINES = [line for path in sorted(glob.glob(f"{SOURCE}/tests/cli/*.sh")) for line in shell_lines(path)]
LINES += [line for path in sorted(glob.glob(f"{SOURCE}/tests/cli/*.py")) for line in python_lines(path)]


def exercised(*patterns):
    return any(all(re.search(p, line) for p in patterns) for line in LINES)


def need(what, *patterns):
    if not exercised(*patterns):
        missing.append(what)


def whole(word):
    return rf"(?<![\w-]){re.escape(word)}(?![\w-])"


for page in sorted(glob.glob(f"{SOURCE}/docs/man/*.1")):
    program = os.path.basename(page)[:-2]
    with open(page) as f:
        text = f.read()
    subcommand = None
    for line in text.splitlines():
        if line.startswith((".Sh ", ".Ss ")):
            subcommand = line[4:] if re.match(r"\.Ss [a-z]+$", line) else None
            command = f"{program} {subcommand}" if subcommand else program
            if subcommand:
                need(command, rf"(gives|ends) \d.*{command}\b")
        elif line.startswith(".It Fl "):
            for option in re.findall(r"Fl (-?[a-z][a-z-]*)", line):
                need(f"{command} -{option}", rf"\b{command}\b", whole("-" + option))
        elif re.match(r"\.It \d+$", line):
            need(f"{program}: exit status {line[4:]}", rf"(gives|ends|misuse\(\)) .*\b{line[4:]}\b|^dcp-run misuse",
                 rf"\b{program}\b")
for what in missing:
    print(f"FAILED: no test exercises {what}")
sys.exit(bool(missing))
