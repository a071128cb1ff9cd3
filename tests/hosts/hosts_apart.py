#!/usr/bin/env python3
"""The hosts of these tests are apart as machines are: name, boot, memory, processes and network are
their own; a link can be slow or cut, a host can lose its power; and all goes when the test does."""
from hosts_lib import *



def leaves_nothing():
    """A test that is killed, seen from outside."""
    cards = set(os.listdir("/sys/class/net"))
    command = f"{HERE}/hosts.py on h2 sh -c 'echo up; exec sleep 1000'"
    test = subprocess.Popen([f"{HERE}/hosts.py", "make", "2", "sh", "-c", command],
                            stdout=subprocess.PIPE, text=True)
    if "SKIPPED" in test.stdout.readline():
        return
    below, new = [], [test.pid]
    while new:
        new = [child for pid in new for child in children(pid)]
        below += new
    assert len(below) > 5, below
    test.kill()
    test.wait()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below), "processes to end")
    assert set(os.listdir("/sys/class/net")) == cards


if not os.environ.get(WITHIN) and os.geteuid() == 0:
    leaves_nothing()
hosts = make(3)


def on(name, *command):
    return hosts.run(name, command, stdout=subprocess.PIPE, text=True).stdout


def rsh(source, target, command):
    """From one host to another, over the network: status and output."""
    done = subprocess.run(hosts.enter_command(source, [f"{HERE}/rsh.py", target, command]),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode, done.stdout


for what in ("hostname", "cat /proc/sys/kernel/random/boot_id", "stat -c %d /dev/shm",
             f"stat -c %d {LOCAL}", "readlink /proc/self/ns/pid"):
    said = {on(name, *what.split()) for name in hosts.names}
    assert len(said) == 3, f"{what}: {said}"
    assert len({on(name, "stat", "-c", "%d", SHARED) for name in hosts.names}) == 1
for name in ("DCP_BIN", "SHARED", "OMPI_MCA_btl"):  # a login knows nothing of who calls
    assert rsh("h1", "h2", f"echo ${name}; exit 7") == (7, "\n"), name
assert rsh("h1", "h3", "hostname; head -c 300000 /dev/zero | tr '\\0' a | wc -c") == (0, "h3\n300000\n")

hosts.slow("h2", "10mbit")
begin = time.monotonic()
assert rsh("h1", "h2", "head -c 1500000 /dev/zero | tr '\\0' a")[0] == 0
assert 1.0 < time.monotonic() - begin, "12 Mbit in less than a second: not slow"

waits = hosts.start("h1", [f"{HERE}/rsh.py", "h2", "sleep 1000"])
until(lambda: "sleep" in hosts.pids("h2").values(), "a command")
hosts.cut("h2")
assert rsh("h1", "h2", "true")[0] == 255 and rsh("h1", "h3", "true")[0] == 0
assert "sleep" in hosts.pids("h2").values() and waits.poll() is None, "cut off, it goes on"
hosts.join("h2")
assert rsh("h1", "h2", "true")[0] == 0

on("h2", "touch", "/dev/shm/kept")
sleeping = next(pid for pid, name in hosts.pids("h2").items() if name == "sleep")
hosts.kill("h2")
assert not os.path.exists(f"/proc/{sleeping}") and waits.poll() is None, "nobody hears that it is gone"
assert rsh("h1", "h2", "true")[0] == 255
hosts.boot("h2")
assert rsh("h1", "h2", "ls /dev/shm") == (0, "")
