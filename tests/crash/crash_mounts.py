"""File systems for tests: created in a folder, mounted, and removed with the test.

What is mounted and started lives in the test's own namespaces, so nothing is left of it, however the test ends.
Requires root."""
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

IMAGES = ("ext4", "xfs", "btrfs")
MIRRORS = {"fuse_no_locks": ("no_locks", "no_flags"), "fuse_granted": ("granted", "no_flags")}
# volumes: the number of bricks, and how gluster uses them
VOLUMES = {"glusterfs": (1, ()), "glusterfs_dispersed": (3, ("disperse", "3", "redundancy", "1"))}
TYPES = (*IMAGES, "tmpfs", *MIRRORS, *VOLUMES)
ENTERED = "DCP_MATRIX_MOUNTS"
LIMIT = 120  # seconds within which a server must have started; it needs one


class Unavailable(Exception):
    """Says why this file system cannot be made here."""


def enter_namespace(*more):
    """Enters a mount namespace of our own, so mounts end with this process; if that is not possible, continues
    without one. `more`: other options of unshare."""
    options = ["-m", *more]
    if os.geteuid() == 0 and ENTERED not in os.environ and \
            not subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL,
                               check=False).returncode:
        os.environ[ENTERED] = "1"
        os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])
    return ENTERED in os.environ


def run(*command):
    """Returns the command's output; raises Unavailable if it fails."""
    try:
        done = subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def wait_for(condition, server):
    """Waits until the condition holds; raises Unavailable if the server has ended, or needs too long."""
    end = time.monotonic() + LIMIT
    while not condition():
        if server.poll() is not None or time.monotonic() > end:
            raise Unavailable(f"{server.args[0]} does not start: {tail(server.log)}")
        time.sleep(0.05)


def tail(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read()[-400:]


def start(log, *command):
    """Starts a server, which writes into that file."""
    if not shutil.which(command[0]):
        raise Unavailable(f"there is no {command[0]}")
    with open(log, "w", encoding="utf-8") as file:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    server.log = log
    return server


def folder(*parts):
    path = os.path.join(*parts)
    os.makedirs(path, exist_ok=True)
    return path


def mount_image(kind, scratch, size="1G"):
    """Returns a folder on a file system in a file."""
    if ENTERED not in os.environ:
        raise Unavailable("no mount namespace")
    image, at = os.path.join(scratch, "image"), folder(scratch, kind)
    run("truncate", "-s", size, image)
    run(f"mkfs.{kind}", "-q", image)
    run("mount", "-o", "loop", image, at)
    return at


def mount_mirror(program, words, scratch, name):
    """Mounts a mirror of the folder `scratch/mirrored`; two of them behave like two hosts. What it answered is recorded
    in `scratch/control.NAME`."""
    at, control = folder(scratch, name), folder(scratch, f"control.{name}")
    server = start(os.path.join(scratch, f"{name}.log"), program, folder(scratch, "mirrored"), at,
                   control, *words)
    wait_for(lambda: os.path.exists(os.path.join(control, "ready")) and os.path.ismount(at), server)
    return at


def set_up_loopback(address):
    """The loopback of a network namespace, with a second address: GlusterFS does not accept 127.*."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for name, ip in ((b"lo", "127.0.0.1"), (b"lo:1", address)):
            request = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(ip))
            fcntl.ioctl(s, 0x8916, request)  # SIOCSIFADDR
            fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", name, 0x1 | 0x8 | 0x40))  # SIOCSIFFLAGS


def mount_gluster(kind, scratch, names):
    """Mounts a volume once for each name. Its daemons' own folders are bound to folders in scratch."""
    address, socket_path = "192.0.2.1", "/run/glusterd.socket"
    for path in ("/var/lib/glusterd", "/var/log/glusterfs", "/run"):
        if not os.path.isdir(path):
            raise Unavailable(f"there is no {path}")
        run("mount", "--bind", folder(scratch, "gluster" + path), path)
    folder("/run/gluster")
    try:
        set_up_loopback(address)
    except OSError as error:
        raise Unavailable(f"no loopback: {error.strerror}") from None
    server = start(os.path.join(scratch, "glusterd.log"), "glusterd", "-N")
    gluster = ("gluster", "--mode=script")

    def answers():
        with contextlib.suppress(Unavailable):
            return os.path.exists(socket_path) and run(*gluster, "volume", "list") is not None
        return False
    wait_for(answers, server)
    bricks, how = VOLUMES[kind]
    run(*gluster, "volume", "create", "dcp", *how,
        *(f"{address}:{folder(scratch, f'brick{i}')}" for i in range(bricks)), "force")
    run(*gluster, "volume", "start", "dcp")
    mounted = [folder(scratch, name) for name in names]
    for at in mounted:
        run("mount", "-t", "glusterfs", f"{address}:/dcp", at)
    return mounted


def mount(kind, scratch, mirror_program):
    """Returns the folders in which the file system is mounted: two if there can be two hosts, otherwise one."""
    hosts = ("a", "b")
    if kind == "tmpfs":
        at = folder(scratch, kind)
        run("mount", "-t", "tmpfs", "tmpfs", at)
        return [at]
    if kind in IMAGES:
        return [mount_image(kind, scratch)]
    if kind in MIRRORS:
        return [mount_mirror(mirror_program, MIRRORS[kind], scratch, name) for name in hosts]
    return mount_gluster(kind, scratch, hosts)
