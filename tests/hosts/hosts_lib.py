"""Hosts for tests: namespaces joined by a bridge, each with its own address, name, processes, boot id, /dev/shm and
private folder. To Open MPI and libdcp they are different machines.

All of it is in the test's own namespaces: it cannot collide with another test, no packet leaves them, and everything
ends with the test, even if the test is killed.

    from hosts_lib import make
    hosts = make(3)              # must come first: the test starts again, within its namespaces
    run = hosts.start("h1", ["mpirun", "--host", "h1,h2,h3", "-n", "3", "program"])

SHARED is one folder that all hosts see; LOCAL is a different folder on each. Scripts use hosts.py."""
import os, shutil, signal, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../support")
import cases

TIMEOUT = 60
NAMESPACES = ["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
WITHIN = "DCP_TEST_HOSTS"  # set to WHERE in a test that runs in its namespaces


def choose_folder():
    """Returns a folder that every Debian has. Mounts there are visible only to the test."""
    for folder in ("/mnt", "/media", "/srv"):
        if not any(path.startswith(folder + "/") for path in (HERE, os.environ.get("DCP_BIN", ""))):
            return folder


WHERE = os.environ.get(WITHIN) or choose_folder()
SHARED, LOCAL = f"{WHERE}/shared", f"{WHERE}/local"


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def call(*args):
    subprocess.run(args, check=True)


os.environ["PATH"] += ":/usr/sbin:/sbin"  # for ip and tc


def enter():
    """Starts this program again, in its own namespaces. Returns only there."""
    if os.environ.get(WITHIN):
        return
    if os.geteuid() != 0:
        skip("hosts are namespaces, which only root may make")
    for program in ("unshare", "nsenter", "ip", "tc"):
        if not shutil.which(program):
            skip(f"there is no {program}")
    probe = f"mount -t tmpfs t {WHERE} && ip link add name bridge0 type bridge && ip link add v type veth peer name w && mount -t sysfs s /sys"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", probe], capture_output=True, text=True)
    if tried.returncode != 0:
        skip(f"no namespaces, bridge or veth here: {tried.stderr.strip()}")
    os.environ[WITHIN] = WHERE
    os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, *sys.argv])


def children(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                parent = f.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(int(name))
    return found


def until(condition, what, limit=TIMEOUT):
    deadline = time.monotonic() + limit
    while not (held := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.005)
    return held


class Hosts:
    """Running hosts, named h1, h2, ..., with the addresses 10.0.0.1, ..."""

    def __init__(self):
        with open(f"{WHERE}/names") as f:
            self.names = [line.split()[1] for line in f if line.startswith("10.")]

    def address(self, name):
        return f"10.0.0.{name[1:]}"

    def boot(self, name):
        """Starts a host, for the first time or after kill(). Its memory is empty."""
        said = f"{WHERE}/of/{name}.err"
        with open(said, "w") as err:
            outer = subprocess.Popen(["unshare", *NAMESPACES, f"{HERE}/host_init.py", name, WHERE],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                                     text=True)
        if outer.stdout.readline() != "up\n":
            with open(said) as err:
                raise RuntimeError(f"{name} does not come up: {err.read()}")
        init = children(outer.pid)[0]
        with open(f"{WHERE}/of/{name}", "w") as f:
            f.write(str(init))
        call("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(init))
        call("ip", "link", "set", f"to-{name}", "master", "bridge0", "up")
        self.run(name, ["ip", "address", "add", f"{self.address(name)}/24", "dev", "eth0"])
        card = f"02:00:00:00:00:{int(name[1:]):02x}"  # other hosts remember the address when it boots again
        self.run(name, ["ip", "link", "set", "eth0", "address", card, "up"])

    def init(self, name):
        """Returns the arguments of a host's first process."""
        with open(f"{WHERE}/of/{name}") as f:
            return int(f.read())

    def enter_command(self, name, command):
        return ["nsenter", "-t", str(self.init(name)), "-m", "-n", "-u", "-i", "-p",
                "env", "-C", os.getcwd(), f"TMPDIR={LOCAL}/tmp", *map(str, command)]

    def start(self, name, command, **options):
        """Starts a command on a host in the background and returns its Popen, which ends when the command ends."""
        return subprocess.Popen(self.enter_command(name, command), stdin=subprocess.DEVNULL, **options)

    def run(self, name, command, **options):
        """Runs a command on a host to its end; it must succeed."""
        return subprocess.run(self.enter_command(name, command), check=True, **options)

    def pid(self, process):
        """Returns the pid, for signals, of a process that start() started: the one below nsenter."""
        return until(lambda: children(process.pid), "a process")[0]

    def pids(self, name):
        """Returns all processes of a host except its first one and zombies, each with its program's name."""
        init, found = self.init(name), {}
        if not os.path.exists(f"/proc/{init}"):
            return found
        space = os.readlink(f"/proc/{init}/ns/pid")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") != space or int(pid) == init:
                    continue
                with open(f"/proc/{pid}/stat") as f:
                    name, _, rest = f.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            if rest.split()[0] not in "ZX":
                found[int(pid)] = name
        return found

    def cut(self, name):
        """Disconnects the host silently, as if a switch failed."""
        call("ip", "link", "set", f"to-{name}", "nomaster")

    def join(self, name):
        call("ip", "link", "set", f"to-{name}", "master", "bridge0")

    def slow(self, name, rate):
        """Limits both directions of the host's link to the rate, for example "10mbit"."""
        limits = ["root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"]
        call("tc", "qdisc", "replace", "dev", f"to-{name}", *limits)
        self.run(name, ["tc", "qdisc", "replace", "dev", "eth0", *limits])

    def kill(self, name):
        """Turns the host's power off: all its processes end, and no other host is notified."""
        self.cut(name)
        init = self.init(name)
        os.kill(init, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{init}"), f"{name} to be gone")
        # sockets in the kernel would keep the namespace for minutes; without any it disappears
        subprocess.run(["ip", "link", "delete", f"to-{name}"], stderr=subprocess.DEVNULL)
        until(lambda: not os.path.exists(f"/sys/class/net/to-{name}"), f"{name}'s link to be gone")


def make(n):
    """Returns n running hosts."""
    enter()
    call("ip", "link", "set", "lo", "up")
    call("mount", "-t", "tmpfs", "hosts", WHERE)
    call("mount", "-t", "tmpfs", "shm", "/dev/shm")
    call("mount", "-t", "sysfs", "sys", "/sys")  # it shows the network namespace of the process that mounts it
    for folder in (SHARED, LOCAL, f"{WHERE}/of"):
        os.mkdir(folder)
    with open(f"{WHERE}/names", "w") as f:
        f.write("127.0.0.1 localhost\n")
        f.writelines(f"10.0.0.{i} h{i}\n" for i in range(1, n + 1))
    call("mount", "--bind", f"{WHERE}/names", "/etc/hosts")
    call("ip", "link", "add", "name", "bridge0", "type", "bridge")
    call("ip", "link", "set", "bridge0", "up")
    for agent in ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"):  # Open MPI 4, Open MPI 5, MPICH
        os.environ[agent] = f"{HERE}/rsh.py"
    os.environ["HYDRA_LAUNCHER"] = "rsh"  # ssh has the option -x, rsh.py does not
    os.environ.update(OMPI_MCA_btl="self,vader,tcp",
                      OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      SHARED=SHARED, LOCAL=LOCAL)
    os.chdir(SHARED)
    hosts = Hosts()
    for name in hosts.names:
        hosts.boot(name)
    return hosts
