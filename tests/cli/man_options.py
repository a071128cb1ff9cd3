#!/usr/bin/env python3
"""--help, which shows the common use first, man page and completion of each program have the same options;
the man page has the exit statuses that --help has. dcp-train.json(5), completion, --print-config and
--print-keys have the same keys, and the page has the words that they take. Man pages are free of errors."""
import json, os, re, shutil, subprocess, sys, tempfile

SOURCE, BIN = os.environ["DCP_SOURCE"], os.environ["DCP_BIN"]
MAN, COMPLETION = f"{SOURCE}/docs/man", f"{SOURCE}/docs/completion/dcp.bash"
PROGRAMS = sorted(name[:-2] for name in os.listdir(MAN) if name.endswith(".1"))
failed = False


def wrong(why):
    global failed
    failed = True
    print("FAILED:", why)


def compare(what, **found):
    """All sets must be the same one."""
    union = set().union(*found.values())
    for where, has in found.items():
        if has != union:
            wrong(f"{what}: {where} lacks {', '.join(sorted(union - has))}")


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout


def help_options(*command):
    """The options in the left column of --help."""
    text = run(f"{BIN}/{command[0]}", *command[1:], "--help")
    lines = [line for line in text.splitlines() if re.match(r" +-", line)]
    left = [re.split(r"(?<=\S)  +", line.strip())[0] for line in lines]
    return {o for column in left for o in re.findall(r"(?:^|(?<= ))--?[a-z][a-z-]*", column)}


def help_subcommands(program):
    usage = run(f"{BIN}/{program}", "--help").split("\n\n")[0]
    words = re.findall(rf"{program} ([a-z|]+)(?: |$)", usage, re.M)
    return {word for group in words for word in group.split("|")}


def works_alone(program):
    """Whether the usage has a line without a subcommand."""
    usage = run(f"{BIN}/{program}", "--help").split("\n\n")[0]
    return any(not re.search(rf"{program} [a-z|]+( |$)", line) for line in usage.splitlines() if program in line)


def completed(*words):
    """What completing the last of the words offers."""
    script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
              '_dcp "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\\n" "${COMPREPLY[@]}"')
    return set(run("bash", "-c", script, "bash", COMPLETION, f"{BIN}/{words[0]}", *words[1:]).split())


def page(name):
    with open(f"{MAN}/{name}") as f:
        return f.read()


def flags(text):
    """Options that a piece of a page describes: its items that begin with Fl."""
    items = re.findall(r"^\.It (Fl .*)$", text, re.M)
    return {"-" + flag for item in items for flag in re.findall(r"(?:Fl|,) (-?[a-z][a-z-]*)", item)}


def man_options(text, subcommand=None, alone=False):
    """A page's options; those of a subcommand stand in its own Ss, beside those of all in DESCRIPTION; where
    the program is one without a subcommand, too (alone), these are not the subcommand's."""
    parts = re.split(r"^\.Ss (.*)$", text, flags=re.M)
    own = {parts[i]: flags(parts[i + 1].split("\n.Sh ")[0]) for i in range(1, len(parts), 2)}
    shared = flags(text) - set().union(*own.values(), set()) if own else flags(text)
    if alone and subcommand:
        shared &= {"--help", "--version"}
    return shared | own.get(subcommand, set())


def keys(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from keys(value, f"{prefix}{key}.")
        else:
            yield prefix + key


if set(PROGRAMS) != {p for p in os.listdir(BIN) if p.startswith("dcp-")}:
    wrong(f"man pages are there for {PROGRAMS}, programs are {sorted(os.listdir(BIN))}")
for program in PROGRAMS:
    text = page(program + ".1")
    subcommands = help_subcommands(program)
    documented = set(re.findall(r"^\.Ss ([a-z]+)$", text, re.M))
    if subcommands:
        compare(f"{program}'s subcommands", help=subcommands, man=documented, completion=completed(program, ""))
    alone = works_alone(program)
    for command in [(program, s) for s in sorted(subcommands)] + [(program,)] * alone:
        compare(" ".join(command), help=help_options(*command), man=man_options(text, *command[1:], alone=alone),
                completion=completed(*command, "-"))
        if not re.match(r"Usage: dcp-[^\[]*(\[.*)?\n(       .*\n)*\nCommon use:\n", run(f"{BIN}/{program}", *command[1:], "--help")):
            wrong(f"{' '.join(command)} --help does not show the common use first")
    statuses = re.search(r"^\.Sh EXIT STATUS$(.*?)^\.Sh ", text, re.M | re.S)
    given = set(re.findall(r"^\.It (\d+)$", statuses[1], re.M)) if statuses else set()
    said = run(f"{BIN}/{program}", "--help").partition("Exit status")[2]
    compare(f"{program}'s exit statuses", help=set(re.findall(r"\b(143|75|[0-3])\b", said)), man=given)
    version = run(f"{BIN}/{program}", "--version")
    if not re.fullmatch(rf"{program} \d+\.\d+\.\d+\n", version):
        wrong(f"{program} --version: {version}")

for program in PROGRAMS:  # on two cores Open MPI refuses four ranks
    for command in [program], *([program, word] for word in help_subcommands(program)):
        for line in run(f"{BIN}/{command[0]}", *command[1:], "--help").splitlines() + page(f"{program}.1").splitlines():
            if re.search(r"mpirun -n \d ", line):
                wrong(f"{' '.join(command)}: without --oversubscribe: {line}")

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/config.json", "w") as f:
        json.dump({"model": "config.json", "data": {"path": "data"}}, f)
    with open(f"{folder}/model.json", "w") as f:
        json.dump({"model_type": "llama"}, f)
    printed = {optimizer: json.loads(run(f"{BIN}/dcp-train", f"{folder}/config.json", f"model={folder}/model.json",
                                         f"optimizer.type={optimizer}", "--print-config"))
               for optimizer in ("AdamW", "SGD")}
described = dict(re.findall(r"^\.It Cm (\S+)$(.*?)(?=^\.It Cm|^\.Ss|^\.Sh)", page("dcp-train.json.5"), re.M | re.S))
shown = [re.split("  +", line) for line in run(f"{BIN}/dcp-train", "--print-keys").splitlines()]
for optimizer, tree in printed.items():
    compare(f"keys of the configuration with {optimizer}", print_config=set(keys(tree)),
            print_keys={key for key, *_, about in shown if not re.search(rf"\(of (?!{optimizer}\))\w+\)$", about)})
compare("keys of the configuration", print_keys={row[0] for row in shown}, man=set(described),
        completion={key[:-1] for key in completed("dcp-train", "config.json", "")})
for key, values, default, about in shown:
    words = set(values.split("|")) - {"true", "false", "PATH"} if "|" in values else set()
    if default not in ("-", "null"):
        words.add(re.sub(r"\.0$", "", default.strip('"')))
    for word in words:
        if not re.search(rf"(^| ){re.escape(word)}([ .,;]|$)", described.get(key, ""), re.M):
            wrong(f"dcp-train.json(5): {key} may be {word}, which its item does not say")

for program in PROGRAMS:  # on two cores Open MPI refuses four ranks
    for command in [program], *([program, word] for word in help_subcommands(program)):
        for line in run(f"{BIN}/{command[0]}", *command[1:], "--help").splitlines() + page(f"{program}.1").splitlines():
            if re.search(r"mpirun -n \d ", line):
                wrong(f"{' '.join(command)}: without --oversubscribe: {line}")

with tempfile.TemporaryDirectory() as folder:
    line = json.loads(run(f"{BIN}/dcp-bench", "save", folder, *"--layers 1 --hidden 8 --vocab 8".split()))
before = page("dcp-bench.1").split("The options, of all")[0]
compare("what dcp-bench tells", printed=set(line),
        man={name for names in re.findall(r"^\.It Va (.*)$", before, re.M) for name in names.split(" , ")})

for command in (["mandoc", "-Tlint", "-Wwarning"], ["groff", "-ww", "-mandoc", "-Tutf8", "-z"]):
    if shutil.which(command[0]):
        done = subprocess.run([*command, *(f"{MAN}/{name}" for name in sorted(os.listdir(MAN)) if name[-1].isdigit())],
                              capture_output=True, text=True)
        if done.stdout or done.stderr or done.returncode:
            wrong(f"{command[0]}: {done.stdout}{done.stderr}")
sys.exit(failed)
