#!/usr/bin/env python3
"""The cost of moving data for many ranks, as a table: data_table.py [--only WORD] [--json FILE] [--write FILE]

Runs the simulation (data_scale) for each state and number of ranks in docs/scale.md, which requires up to 20 GB, and
prints the figures in Markdown; with --write it replaces the tables in that file."""
import argparse
import concurrent.futures
import json
import pathlib
import resource
import subprocess
import sys
import time

CASES = {  # title: arguments. The layers of a model are alike, so a few suffice.
    "8B on 512": "8b --ranks 512",
    "8B, HSDP 8 x 64": "8b --ranks 512 --shards 64",
    "70B on 4,096": "70b --ranks 4096 --layers 4",
    "405B on 16,384": "405b --ranks 16384 --layers 1",
    "small on 512": "small --ranks 512",
    "small on 4,096": "small --ranks 4096 --layers 40",
    "small on 16,384": "small --ranks 16384 --layers 4",
}
# First the cases that nearly fill the memory of a machine with 24 GB, then two at a time.
ALONE = ["405B on 16,384", "small on 16,384"]
LANES = [["small on 4,096", "small on 512"], ["8B on 512", "8B, HSDP 8 x 64", "70B on 4,096"]]
BEGIN, END = "<!-- tables of data_table.py -->\n", "<!-- end -->\n"


def simulate(program, arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return {row["op"]: row for row in map(json.loads, done.stdout.splitlines())}


def simulate_all(program, cases):
    def run(lane):
        return {title: simulate(program, cases[title]) for title in lane if title in cases}
    found = run(ALONE)
    with concurrent.futures.ThreadPoolExecutor(len(LANES)) as pool:
        for results in pool.map(run, LANES):
            found.update(results)
    return {title: found[title] for title in cases}


def size(value):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
        value /= 1024
    return None


def share(part, whole):
    return f"{part / whole:.3f}" if whole else "-"


def within(row):
    return row["data"]["bytes"] - row["data"]["between"] + row["shared_bytes"]


def simulated(row):
    layers = row["layers"]
    return f"{layers} of {row['of_layers']} layers" if layers < row["of_layers"] else "whole"


def requests(key):
    return [
        (f"{key}: median", lambda ops, row: size(row[key]["median"])),
        (f"share of bytes in {key} of 1 MiB and more",
         lambda ops, row: f"{row[key]['in_large']:.3f}"),
        (f"share of bytes in such {key} that begin on a MiB", lambda ops, row: f"{row[key]['in_aligned']:.3f}"),
        ("most ranks that touch one MiB", lambda ops, row: row[key]["most_ranks_of_mib"]),
        (f"ranks with {key}", lambda ops, row: f"{row[key]['ranks']:,}"),
        ("most bytes of such a rank, relative to the mean",
         lambda ops, row: f"{row[key]['most_over_mean']:.2f}"),
        (f"bytes of {key}, relative to the state",
         lambda ops, row: share(row[key]["bytes"], row["state_bytes"])),
    ]


TRAVEL = [
    ("bytes between hosts, relative to the state",
     lambda ops, row: share(row["data"]["between"], row["state_bytes"])),
    ("bytes within hosts, relative to the state",
     lambda ops, row: share(within(row), row["state_bytes"])),
    ("messages with data", lambda ops, row: f"{row['data']['n']:,.0f}"),
    ("half of their bytes are in messages of at least",
     lambda ops, row: size(row["data"]["usual"])),
    ("peers of a rank, with data", lambda ops, row: f"{row['data']['peers']:,}"),
    ("peers of a rank, without data", lambda ops, row: f"{row['other']['peers']:,}"),
    ("collectives that move data", lambda ops, row: f"{row['data_collectives']:,}"),
    ("those of them in which no bytes travel", lambda ops, row: f"{row['empty_collectives']:,}"),
]

MEMORY = [
    ("most memory of a rank", lambda ops, row: f"{row['mib_most']:.1f} MiB"),
    ("simulated", lambda ops, row: simulated(row)),
]

TABLES = {
    "save_kept": requests("writes") + TRAVEL + [
        ("other collectives: first save, second save, save with kept plan",
         lambda ops, row: ", ".join(str(ops[op]["collectives"]) for op in
                                    ("save_first", "save_again", "save_kept"))),
    ] + MEMORY,
    "load": requests("reads") + TRAVEL + [
        ("other collectives: open, load",
         lambda ops, row: f"{ops['open_step']['collectives']}, {row['collectives']}"),
        ("memory of the open step", lambda ops, row: f"{ops['open_step']['mib_most']:.1f} MiB"),
    ] + MEMORY,
}


def table(operation, figures, results):
    lines = [f"| {operation} | " + " | ".join(results) + " |", "| --- |" + " ---: |" * len(results)]
    for title, figure in figures:
        cells = [str(figure(ops, ops[operation])) for ops in results.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write_into(path, text):
    """Replaces the text between the marks of the file."""
    old = path.read_text()
    begin, end = old.index(BEGIN) + len(BEGIN), old.index(END)
    path.write_text(old[:begin] + text + old[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=pathlib.Path(__file__).parents[3] /
                        "build/tests/bin/data_scale")
    parser.add_argument("--only", default="", help="cases with this word in their title")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--figures", help="prints those of such a file, and simulates nothing")
    parser.add_argument("--sharded", action="store_true", help="layout sharded")
    parser.add_argument("--write", type=pathlib.Path, help="docs/scale.md: gets the tables")
    options = parser.parse_args()
    cases = {t: a.split() + ["--sharded"] * options.sharded for t, a in CASES.items()
             if options.only in t}
    start = time.monotonic()
    if options.figures:
        results = json.loads(pathlib.Path(options.figures).read_text())
    else:
        results = simulate_all(options.program, cases)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    text = "\n".join(table(name, figures, results) for name, figures in TABLES.items())
    print(text)
    if options.write:
        write_into(options.write, text)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors; "
          f"the largest simulation took {used.ru_maxrss / 1e6:.1f} GB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
