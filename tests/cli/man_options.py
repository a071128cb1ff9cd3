#!/usr/bin/env python3
"""Each program's --help, which shows the most common use first, its man page and its completion have the same
options, and the man page has the exit statuses of --help. dcp-train.json(5), completion, --print-config and
--print-keys have the same keys, and the page has the words that keys accept. Man pages have no errors."""
import functools, json, os, re, shutil, subprocess
from hf_folder import BIN, SOURCE, cases

MAN, COMPLETION = f"{SOURCE}/docs/man", f"{SOURCE}/docs/completion/dcp.bash"
PROGRAMS = sorted(name[:-2] for name in os.listdir(MAN) if name.endswith(".1"))


def compare(what, **found):
    """All sets must be equal."""
    union = set().union(*found.values())
    lacking = [f"{where} lacks {', '.join(sorted(union - has))}" for where, has in found.items() if has != union]
    assert not lacking, f"{what}: {'; '.join(lacking)}"


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout


def help_options(*command):
    """Returns the options in the left column of --help."""
    text = help_text(*command)
    lines = [line for line in text.splitlines() if re.match(r" +-", line)]
    left = [re.split(r"(?<=\S)  +", line.strip())[0] for line in lines]
    return {o for column in left for o in re.findall(r"(?:^|(?<= ))--?[a-z][a-z-]*", column)}


def help_subcommands(program):
    usage = help_text(program).split("\n\n")[0]
    words = re.findall(rf"{program} ([a-z|]+)(?: |$)", usage, re.M)
    return {word for group in words for word in group.split("|")}


def works_alone(program):
    """Returns true if the usage has a line without a subcommand."""
    usage = help_text(program).split("\n\n")[0]
    return any(not re.search(rf"{program} [a-z|]+( |$)", line) for line in usage.splitlines() if program in line)


def completed(*words):
    """Returns the completions of the last word."""
    script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
              '_dcp "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\\n" "${COMPREPLY[@]}"')
    return set(run("bash", "-c", script, "bash", COMPLETION, f"{BIN}/{words[0]}", *words[1:]).split())


def page(name):
    with open(f"{MAN}/{name}") as f:
        return f.read()


def flags(text):
    """Returns the options that a part of a page describes: its items that begin with Fl."""
    items = re.findall(r"^\.It (Fl .*)$", text, re.M)
    return {"-" + flag for item in items for flag in re.findall(r"(?:Fl|,) (-?[a-z][a-z-]*)", item)}


def man_options(text, subcommand=None, alone=False):
    """Returns a page's options. Those of a subcommand are in its own Ss, in addition to the common ones in
    DESCRIPTION. If the program also works without a subcommand (alone), those in DESCRIPTION are not the
    subcommand's."""
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


def commands():
    """Yields each program, alone and with each of its subcommands, as words of a command."""
    for program in PROGRAMS:
        yield program,
        for word in sorted(help_subcommands(program)):
            yield program, word


def name_of(command):
    return " ".join(command)


@functools.cache
def help_text(*command):
    return run(f"{BIN}/{command[0]}", *command[1:], "--help")


def test_each_program_has_a_page():
    assert set(PROGRAMS) == {p for p in os.listdir(BIN) if p.startswith("dcp-")}, \
        f"man pages exist for {PROGRAMS}, programs are {sorted(os.listdir(BIN))}"


def test_subcommands_are_the_same():
    for program in PROGRAMS:
        if help_subcommands(program):
            with cases.part(program):
                compare(f"{program}'s subcommands", help=help_subcommands(program),
                        man=set(re.findall(r"^\.Ss ([a-z]+)$", page(f"{program}.1"), re.M)), completion=completed(program, ""))


def test_options_are_the_same():
    for command in commands():
        alone = works_alone(command[0])
        if len(command) > 1 or alone:
            with cases.part(name_of(command)):
                compare(name_of(command), help=help_options(*command), completion=completed(*command, "-"),
                        man=man_options(page(f"{command[0]}.1"), *command[1:], alone=alone))


def test_help_shows_the_common_use_first():
    for command in commands():
        if len(command) > 1 or works_alone(command[0]):
            with cases.part(name_of(command)):
                text = help_text(*command)
                assert re.match(r"Usage: dcp-[^\[]*(\[.*)?\n(       .*\n)*\nCommon use:\n", text), text


def test_exit_statuses_are_the_same():
    for program in PROGRAMS:
        with cases.part(program):
            statuses = re.search(r"^\.Sh EXIT STATUS$(.*?)^\.Sh ", page(f"{program}.1"), re.M | re.S)
            given = set(re.findall(r"^\.It (\d+)$", statuses[1], re.M)) if statuses else set()
            said = help_text(program).partition("Exit status")[2]
            compare(f"{program}'s exit statuses", help=set(re.findall(r"\b(143|75|[0-3])\b", said)), man=given)


def test_version_is_the_name_and_three_numbers():
    for program in PROGRAMS:
        with cases.part(program):
            version = run(f"{BIN}/{program}", "--version")
            assert re.fullmatch(rf"{program} \d+\.\d+\.\d+\n", version), f"{program} --version: {version}"


def test_examples_oversubscribe():
    """On two cores Open MPI refuses four ranks without that option."""
    for command in commands():
        with cases.part(name_of(command)):
            for line in help_text(*command).splitlines() + page(f"{command[0]}.1").splitlines():
                assert not re.search(r"mpirun -n \d ", line), f"{name_of(command)}: without --oversubscribe: {line}"


@functools.cache
def described_keys():
    """Returns the items of the configuration's page: {key: text}."""
    return dict(re.findall(r"^\.It Cm (\S+)$(.*?)(?=^\.It Cm|^\.Ss|^\.Sh)", page("dcp-train.json.5"), re.M | re.S))


@functools.cache
def shown_keys():
    """Returns the columns of each line of --print-keys."""
    return [re.split("  +", line) for line in run(f"{BIN}/dcp-train", "--print-keys").splitlines()]


def test_print_config_and_print_keys_have_the_same_keys():
    with open("config.json", "w") as f:
        json.dump({"model": "config.json", "data": {"path": "data"}}, f)
    with open("model.json", "w") as f:
        json.dump({"model_type": "llama"}, f)
    for optimizer in "AdamW", "SGD":
        with cases.part(optimizer):
            printed = json.loads(run(f"{BIN}/dcp-train", os.path.abspath("config.json"), f"model={os.path.abspath('model.json')}",
                                     f"optimizer.type={optimizer}", "--print-config"))
            own = {key for key, *_, about in shown_keys() if not re.search(rf"\(of (?!{optimizer}\))\w+\)$", about)}
            compare(f"keys of the configuration with {optimizer}", print_config=set(keys(printed)), print_keys=own)


def test_page_and_completion_have_the_keys_of_the_configuration():
    compare("keys of the configuration", print_keys={row[0] for row in shown_keys()}, man=set(described_keys()),
            completion={key[:-1] for key in completed("dcp-train", "config.json", "")})


def test_the_page_has_the_words_that_keys_take():
    for key, values, default, about in shown_keys():
        words = set(values.split("|")) - {"true", "false", "PATH"} if "|" in values else set()
        if default not in ("-", "null"):
            words.add(re.sub(r"\.0$", "", default.strip('"')))
        for word in words:
            with cases.part(f"{key} {word}"):
                assert re.search(rf"(^| ){re.escape(word)}([ .,;]|$)", described_keys().get(key, ""), re.M), \
                    f"dcp-train.json(5): {key} may be {word}, which its item does not say"


def test_the_page_of_dcp_bench_has_what_it_prints():
    line = json.loads(run(f"{BIN}/dcp-bench", "save", os.getcwd(), *"--layers 1 --hidden 8 --vocab 8".split()))
    before = page("dcp-bench.1").split("The options, of all")[0]
    compare("what dcp-bench tells", printed=set(line),
            man={name for names in re.findall(r"^\.It Va (.*)$", before, re.M) for name in names.split(" , ")})


def check_no_warnings(*command):
    if not shutil.which(command[0]):
        cases.skip(f"there is no {command[0]}")
    done = subprocess.run([*command, *(f"{MAN}/{name}" for name in sorted(os.listdir(MAN)) if name[-1].isdigit())],
                          capture_output=True, text=True)
    assert not (done.stdout or done.stderr or done.returncode), f"{command[0]}: {done.stdout}{done.stderr}"


def test_mandoc_has_no_warnings():
    check_no_warnings("mandoc", "-Tlint", "-Wwarning")


def test_groff_has_no_warnings():
    check_no_warnings("groff", "-ww", "-mandoc", "-Tutf8", "-z")


cases.main()
