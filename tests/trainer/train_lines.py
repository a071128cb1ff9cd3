#!/usr/bin/env python3
"""Lines of steps on stdout, of 100 columns at most and one per log_every steps. On a terminal there is a bar in their place,
also under dcp-run, and messages do not run into it. The metrics file has each step in any case."""
import os, pty, re, select, struct, subprocess, time
from train_lib import BIN, cases, check, config, make_text, metrics, TIMEOUT, train, TRAINER


def steps_of(text):
    return [int(n) for n in re.findall(r"^step (\d+)/12  loss ", text, re.M)]


@cases.shared
def inputs():
    make_text()
    config(data={"sequence_length": 32, "eval_path": "text"}, eval_every=6, max_steps=12)


def test_a_line_for_every_fifth_step():
    cases.use(inputs)
    out, _ = train(2, "config.json", "log_every=5", "checkpoint.dir=lines")
    check(steps_of(out) == [5, 10, 12] and out.count("evaluation after step") == 2, out)
    check(max(map(len, out.splitlines())) <= 100 and "  left " in out, out)
    check([line["step"] for line in metrics()] == list(range(1, 13)), "metrics lack a step")


def on_terminal(*command):
    """Returns what a terminal of 90 columns gets from stdout and stderr."""
    ours, theirs = pty.openpty()
    import fcntl, termios
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, deadline = b"", time.monotonic() + TIMEOUT
    while True:
        check(select.select([ours], [], [], max(0, deadline - time.monotonic()))[0], f"hangs: {said}")
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        said += more
    os.close(ours)
    check(process.wait() == 0, said)
    return said.decode()


def test_a_line_for_each_step():
    cases.use(inputs)
    out, _ = train(1, "config.json", "checkpoint.dir=each")
    check(steps_of(out) == list(range(1, 13)) and "left" not in out.splitlines()[-2], out)
    train(1, "config.json", "log_every=0", expect=2)


def test_a_bar_on_a_terminal():
    cases.use(inputs)
    # A bar begins at the start of the line and clears the rest of it; messages begin on an empty line.
    for name, command in (("alone", [TRAINER]), ("dcp-run", [f"{BIN}/dcp-run", "-n", "2", "--", TRAINER])):
        with cases.part(f"{name}"):
            said = on_terminal(*command, "config.json", f"checkpoint.dir={name}", f"metrics={name}.jsonl")
            bars = re.findall(r"\r(\[#* *\] step [^\r\n]*?)\x1b\[K", said)
            check(bars, f"{name}: no bar: {said!r}")
            check(all(re.match(r"\[#{0,20} {0,20}\] step \d+/12  loss", b) and len(b) <= 89 for b in bars),
                  f"{name}: {bars}")
            shown = re.sub(r"[^\n]*\r\x1b\[K", "", said.replace("\r\n", "\n"))  # what stays visible
            shown = re.sub(r"\r[^\r\n]*\x1b\[K", "\n", shown)
            check(re.findall(r"^step (\d+)/12", shown, re.M) == ["12"], f"{name}: {shown!r}")
            check(shown.count("\nevaluation after step") == 2, f"{name}: {shown!r}")
            check("\ndcp-train: done: step 12 is saved" in shown, f"{name}: {shown!r}")
            check(len(metrics(f"{name}.jsonl")) == 12, f"{name}: metrics lack a step")


def test_logs_of_dcp_run_have_lines():
    cases.use(inputs)
    said = on_terminal(f"{BIN}/dcp-run", "-n", "2", "--logs", "logs", "--", TRAINER, "config.json",
                       "checkpoint.dir=kept")
    check("\x1b" not in said and len(re.findall(r"step \d+/12  loss", said)) == 12, repr(said))


cases.main()
