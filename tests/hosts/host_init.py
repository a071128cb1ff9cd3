#!/usr/bin/env python3
"""The first process of a test's host, in namespaces of its own: what a kernel, init and sshd are to
a real one. It sets the host up, and then runs commands that come over the network (rsh.py).

    host_init.py NAME MOUNT      prints "up" once it listens
"""
import ctypes, json, os, signal, socket, subprocess, sys, uuid

PORT = 22
END = b"\0ended "  # then the exit status, after the command's output


def mount(*args):
    subprocess.run(["mount", *args], check=True)


def set_up(name, where):
    subprocess.run(["hostname", name], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    mount("-t", "tmpfs", "shm", "/dev/shm")
    mount("-t", "sysfs", "sys", "/sys")  # by whose network UCX goes
    mount("-t", "tmpfs", "local", f"{where}/local")
    os.makedirs(f"{where}/local/tmp")
    boot = f"{where}/local/boot_id"
    with open(boot, "w") as f:
        f.write(f"{uuid.uuid4()}\n")
    mount("--bind", boot, "/proc/sys/kernel/random/boot_id")


def serve(connection):
    """One command, like ssh HOST COMMAND with no terminal. Its stdin is what follows on the connection."""
    with connection:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        line = connection.makefile("rb", buffering=0).readline()  # and not a byte more
        if not line.endswith(b"\n"):
            return
        done = subprocess.run(["/bin/sh", "-c", json.loads(line)], stdin=connection.fileno(),
                              stdout=connection.fileno(), stderr=connection.fileno(), cwd="/",
                              start_new_session=True)
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        connection.sendall(END + b"%d\n" % status)
        connection.shutdown(socket.SHUT_RDWR)  # what still runs may hold it open


def main():
    name, where = sys.argv[1:]
    os.setsid()
    set_up(name, where)
    # no variables of whoever started this: a command finds what a login would give it
    variables = {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": "/root", "USER": "root",
                 "SHELL": "/bin/sh", "TMPDIR": f"{where}/local/tmp"}
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become ours, and nobody waits for them
    listener = socket.create_server(("", PORT), backlog=64)
    print("up", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            serve(connection)
            os._exit(0)
        connection.close()


main()
