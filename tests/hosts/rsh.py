#!/usr/bin/env python3
"""Runs a command on a test's host over the network, instead of ssh: rsh.py HOST COMMAND... As with ssh, a shell
there gets all the words and our stdin. Its output comes back, and its exit status, which is 255 if the host
does not answer."""
import json, os, socket, sys, threading

PORT = 22
END = b"\0ended "
LIMIT_S = 2  # for a host that is off or disconnected


def pass_stdin(connection):
    try:
        while chunk := os.read(0, 1 << 16):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the command has ended


def main():
    host, command = sys.argv[1], " ".join(sys.argv[2:])
    try:
        connection = socket.create_connection((host, PORT), LIMIT_S)
        connection.settimeout(None)
        connection.sendall(json.dumps(command).encode() + b"\n")
        threading.Thread(target=pass_stdin, args=(connection,), daemon=True).start()
        seen = b""
        while chunk := connection.recv(1 << 16):
            seen += chunk
            at = seen.find(END)
            if at >= 0 and seen.endswith(b"\n"):
                os.write(1, seen[:at])
                return int(seen[at + len(END):])
            shown = seen if at < 0 and b"\0" not in seen[-len(END):] else b""
            os.write(1, shown)
            seen = seen[len(shown):]
        os.write(1, seen)
        raise ConnectionError("the connection ended")
    except OSError as error:
        print(f"rsh.py: {host}: {error}", file=sys.stderr)
        return 255


sys.exit(main())
