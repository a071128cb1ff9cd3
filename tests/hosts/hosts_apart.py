#!/usr/bin/env python3
"""The hosts of these tests are as separate as machines: each has its own name, boot id, memory, processes and
network. A link can be slow or cut, and a host can lose its power. Nothing of them is left after the test."""
import contextlib, os, subprocess, time
from hosts_lib import HERE, LOCAL, SHARED, WITHIN, cases, children, make, until

hosts = make(3)


def on(name, *command):
    return hosts.run(name, command, stdout=subprocess.PIPE, text=True).stdout


def rsh(source, target, command):
    """Runs a command from one host on another, over the network. Returns its status and output."""
    done = subprocess.run(hosts.enter_command(source, [f"{HERE}/rsh.py", target, command]),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode, done.stdout


def start_sleep_on_h2():
    """Starts a command on h2 from h1 that does not end. Returns its process on h1, and the one on h2."""
    waits = hosts.start("h1", [f"{HERE}/rsh.py", "h2", "sleep 1000"])
    cases.at_end(waits.kill)
    until(lambda: "sleep" in hosts.pids("h2").values(), "a command")
    return waits, next(pid for pid, name in hosts.pids("h2").items() if name == "sleep")


def is_gone(pid):
    """Returns true if the process does not exist. Orphans become children of this process, the first of its
    namespace."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return not os.path.exists(f"/proc/{pid}")


def test_a_test_that_is_killed_leaves_nothing():
    """Runs outside the namespaces of the test that is killed."""
    cards = set(os.listdir("/sys/class/net"))
    command = f"{HERE}/hosts.py on h2 sh -c 'echo up; exec sleep 1000'"
    outside = {name: value for name, value in os.environ.items() if name != WITHIN}
    test = subprocess.Popen([f"{HERE}/hosts.py", "make", "2", "sh", "-c", command], env=outside,
                            stdout=subprocess.PIPE, text=True)
    cases.at_end(test.kill)
    said = test.stdout.readline()
    if "SKIPPED" in said:
        cases.skip(said)
    below, new = [], [test.pid]
    while new:
        new = [child for pid in new for child in children(pid)]
        below += new
    assert len(below) > 5, below
    test.kill()
    test.wait()
    until(lambda: all([is_gone(pid) for pid in below]), "processes to end")
    assert set(os.listdir("/sys/class/net")) == cards


def test_name_boot_memory_folder_and_processes_are_a_hosts_own():
    for what in ("hostname", "cat /proc/sys/kernel/random/boot_id", "stat -c %d /dev/shm",
                 f"stat -c %d {LOCAL}", "readlink /proc/self/ns/pid"):
        with cases.part(what):
            said = {on(name, *what.split()) for name in hosts.names}
            assert len(said) == 3, f"{what}: {said}"


def test_one_folder_is_shared():
    assert len({on(name, "stat", "-c", "%d", SHARED) for name in hosts.names}) == 1


def test_a_login_knows_nothing_of_who_calls():
    for name in ("DCP_BIN", "SHARED", "OMPI_MCA_btl"):
        assert rsh("h1", "h2", f"echo ${name}; exit 7") == (7, "\n"), name


def test_output_comes_back_whole():
    assert rsh("h1", "h3", "hostname; head -c 300000 /dev/zero | tr '\\0' a | wc -c") == (0, "h3\n300000\n")


def test_a_link_can_be_slow():
    hosts.slow("h3", "10mbit")
    begin = time.monotonic()
    assert rsh("h1", "h3", "head -c 1500000 /dev/zero | tr '\\0' a")[0] == 0
    assert 1.0 < time.monotonic() - begin, "12 Mbit in less than a second: not slow"


def test_a_host_that_is_cut_off_goes_on():
    waits, _ = start_sleep_on_h2()
    hosts.cut("h2")
    cases.at_end(hosts.join, "h2")
    assert rsh("h1", "h2", "true")[0] == 255 and rsh("h1", "h3", "true")[0] == 0
    assert "sleep" in hosts.pids("h2").values() and waits.poll() is None, "cut off, it goes on"
    hosts.join("h2")
    assert rsh("h1", "h2", "true")[0] == 0


def test_a_host_that_loses_its_power_loses_its_memory():
    waits, sleeping = start_sleep_on_h2()
    on("h2", "touch", "/dev/shm/kept")
    hosts.kill("h2")
    assert not os.path.exists(f"/proc/{sleeping}") and waits.poll() is None, "nobody hears that it is gone"
    assert rsh("h1", "h2", "true")[0] == 255
    hosts.boot("h2")
    assert rsh("h1", "h2", "ls /dev/shm") == (0, "")


cases.main()
