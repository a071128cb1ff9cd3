#!/usr/bin/env python3
"""The first process of a test's host, in its own namespaces. It does the work of kernel, init and sshd: it sets the
host up, and then runs commands that arrive over the network (rsh.py).

    host_init.py NAME MOUNT      prints "up" once it listens"""
import ctypes, json, os, signal, socket, subprocess, sys, uuid

PORT = 22
END = b"\0ended "  # the exit status follows the command's output


def mount(*args):
    subprocess.run(["mount", *args], check=True)


def set_up(name, where):
    subprocess.run(["hostname", name], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    mount("-t", "tmpfs", "shm", "/dev/shm")
    mount("-t", "sysfs", "sys", "/sys")  # UCX uses the network of this name
    mount("-t", "tmpfs", "local", f"{where}/local")
    os.makedirs(f"{where}/local/tmp")
    boot = f"{where}/local/boot_id"
    with open(boot, "w") as f:
        f.write(f"{uuid.uuid4()}\n")
    mount("--bind", boot, "/proc/sys/kernel/random/boot_id")


def serve(connection):
    """Runs one command, like ssh HOST COMMAND without a terminal. Its stdin is what follows on the connection."""
    with connection:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        line = connection.makefile("rb", buffering=0).readline()  # must not read a byte more
        if not line.endswith(b"\n"):
            return
        done = subprocess.run(["/bin/sh", "-c", json.loads(line)], stdin=connection.fileno(),
                              stdout=connection.fileno(), stderr=connection.fileno(), cwd="/",
                              start_new_session=True)
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        connection.sendall(END + b"%d\n" % status)
        connection.shutdown(socket.SHUT_RDWR)  # processes that still run may hold it open


def main():
    name, where = sys.argv[1:]
    os.setsid()
    set_up(name, where)
    # a command must find the variables of a login, not those of the process that started this one
    variables = {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": "/root", "USER": "root",
                 "SHELL": "/bin/sh", "TMPDIR": f"{where}/local/tmp"}
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become children of this process, which reaps them
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
