"""The results of the crash matrix: a journal, tables, the record in docs/."""
import os
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUTCOMES = ("old", "new", "refused", "failed")


class Journal:
    """A file of results, one line per case, from which an interrupted run continues."""
    def __init__(self, path, built):
        self.builds, self.outcomes, self.file = [built], {}, None
        if not path:
            return
        self.file = open(path, "a+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.file.seek(0)
        for line in self.file:
            if line.startswith("# "):
                self.builds.insert(-1, line[2:].rstrip("\n"))
            else:
                name, outcome = line.split()
                self.outcomes[name] = outcome
        self.file.write(f"# {built}\n")

    def note(self, case, outcome):
        self.outcomes[case.name] = outcome
        if self.file:
            self.file.write(f"{case.name} {outcome}\n")
            self.file.flush()


class Tally:
    """Counts of outcomes by a key of the case, and a table of these counts."""
    def __init__(self, cases, outcomes):
        self.cases, self.outcomes = cases, outcomes

    def table(self, title, key):
        rows = {}
        for case in self.cases:
            row = rows.setdefault(key(case), dict.fromkeys(OUTCOMES, 0))
            row[self.outcomes[case.name]] += 1
        total = {o: sum(row[o] for row in rows.values()) for o in OUTCOMES}
        lines = [f"| {title} | cases | old step loads | new step loads | clear error | failed |",
                 "| --- | --- | --- | --- | --- | --- |"]
        for name, row in [*rows.items(), ("all", total)]:
            counts = " | ".join(str(row[o]) for o in OUTCOMES)
            lines.append(f"| {name} | {sum(row.values())} | {counts} |")
        return "\n".join(lines)

    def text(self):
        return "\n\n".join((
            self.table("fault", lambda c: c.fault),
            self.table("operation", lambda c: c.call.name),
            self.table("save", lambda c: c.config.name.replace(".", ", "))))


def quiet(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip()


RECORD = """# The crash matrix

The crash matrix is a save of two ranks with a failure at operation N, repeated for every operation N of the save.
`tests/crash/crash_matrix.py` defines the cases and the checks after each of them, and runs them all. This page is its
record of a complete run.

- Run at: {built}
- `disk`, `nodes`, `rs1` and `rs2` on {system}, `memory` and `partner` on tmpfs, `xfs` on a
  loop-mounted image
- {cases} cases

Each case injects one fault: `kill` is SIGKILL of one rank, and `killall` of both. `full` and `dead` are ENOSPC and EIO
from operation N on. `short` is a write that stops halfway.

The engines: `pwrite` is `direct` on a system that refuses io_uring, `uring` is `direct` with io_uring.

The kind of store varies: `nodes` has one directory per rank. `partner`, `rs1` and `rs2` (K = 1, 2) also have
redundancy. `tiers` is a list of `partner` and a shared store that is filled from it in the background. `keep` removes
an old step after the save (retention), and `replace` saves a step that exists already. `read` and `reread` are the
same, except that a reader has opened the step that goes away, and loads it afterwards.

The outcomes are:

- "Old step loads": the save failed, or was killed before it was published.
- "New step loads": the save succeeded in spite of the fault, or was killed after publication. Files that were lost have
  been rebuilt.
- "Clear error": nothing remains that could be rebuilt.

{tables}
"""


def describe_build():
    commit = quiet(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"])
    changed = quiet(["git", "-C", ROOT, "status", "--porcelain", "--", "libdcp", "tests/crash"])
    return (f'{time.strftime("%Y-%m-%d", time.gmtime())}, commit {commit}'
            f'{" with changes" if changed else ""}, Linux {os.uname().release.split("-")[0]}')


def later_sections(path):
    """Returns what other tests have written into the same file."""
    try:
        with open(path, encoding="utf-8") as file:
            return "".join(file.read().partition("\n## ")[1:])
    except FileNotFoundError:
        return ""


def record(path, builds, tally, scratch):
    rest = later_sections(path)
    system = quiet(["findmnt", "-n", "-o", "FSTYPE", "-T", scratch])
    with open(path, "w", encoding="utf-8") as out:
        out.write(RECORD.format(built="; ".join(dict.fromkeys(builds)), system=system,
                                cases=len(tally.cases), tables=tally.text()) + rest)
