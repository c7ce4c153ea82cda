"""What an agent's process may try to be taken for a person: attacks.py KIND RESULT URL [MORE..].

Each tries to change the configuration, and writes "STATUS CODE" of the answer to the file RESULT.
"""

import array
import ctypes
import json
import os
import re
import resource
import socket
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_FILES = 0x400
EXIT, IO_URING_SETUP, IO_URING_REGISTER = {"x86_64": (60, 425, 427)}.get(os.uname().machine, (93, 425, 427))
PATIENCE = 10.0

kind, result, url, *more = sys.argv[1:]
host, port = url.removeprefix("http://").rsplit(":", 1)


def change(headers=()):
    body = b'{"maxAgents":77}'
    lines = [
        "PATCH /api/config HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(path):
    return f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def connect(source=None):
    return socket.create_connection((host, int(port)), PATIENCE, (source, 0) if source else None)


def answers(stream, count=1):
    """The last of so many answers: its status and its body."""
    text, status, body = b"", 0, b""
    for _ in range(count):
        while b"\r\n\r\n" not in text:
            text += more_of(stream)
        head, text = text.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
        while len(text) < length:
            text += more_of(stream)
        status, body, text = int(head.split()[1]), text[:length], text[length:]
    return status, body


def more_of(stream):
    part = stream.recv(65536)
    if not part:
        tell(0, b"")
    return part


def tell(status, body):
    code = json.loads(body or b"{}").get("code", "-")
    with open(result + ".tmp", "w") as file:
        file.write(f"{status} {code}\n")
    os.rename(result + ".tmp", result)
    os._exit(0)


def attack(stream=None, headers=()):
    stream = stream or connect()
    stream.sendall(change(headers))
    tell(*answers(stream))


def until(condition):
    """Waits for a condition, but not for ever."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def unanswered(hide, headers=()):
    """A change that is asked for while nobody holds the connection; `hide` answers how to get it back."""
    stream = connect()
    stream.sendall(ask("/api/health") * 200 + change(headers))
    back = hide(stream)
    watch = connect()

    def asked():
        watch.sendall(ask("/api/audit?limit=1"))
        return b"config.patch" in answers(watch)[1]

    end = time.monotonic() + 2
    while not asked() and time.monotonic() < end:
        time.sleep(0.01)
    tell(*answers(back(), 201))


def in_flight(stream):
    ours, theirs = socket.socketpair()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream.fileno()]))]
    ours.sendmsg([b"x"], rights)
    stream.close()

    def back():
        _, found, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
        fd = array.array("i", found[0][2][:4])[0]
        return socket.socket(fileno=fd)

    return back


def in_ring(stream):
    params = ctypes.create_string_buffer(120)
    ring = LIBC.syscall(IO_URING_SETUP, 2, params)
    fds = (ctypes.c_int * 1)(stream.fileno())
    if ring < 0 or LIBC.syscall(IO_URING_REGISTER, ring, 2, fds, 1) < 0:
        tell(0, b'{"code":"no_ring"}')
    ours, theirs = socket.socketpair()
    copy = os.dup(stream.fileno())
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [copy]))]
    ours.sendmsg([b"x"], rights)
    os.close(copy)
    stream.close()

    def back():
        _, found, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
        return socket.socket(fileno=array.array("i", found[0][2][:4])[0])

    return back


def own_table():
    if LIBC.unshare(CLONE_FILES) == 0:
        attack()
    tell(0, b'{"code":"no_unshare"}')


def after_leader():
    until(lambda: open(f"/proc/{os.getpid()}/stat").read().rsplit(") ", 1)[1].startswith("Z"))
    attack()


def starve(daemon):
    stream = connect()
    stream.sendall(ask("/api/health"))
    answers(stream)
    soft, hard = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon, resource.RLIMIT_NOFILE, (3, hard))
    try:
        stream.sendall(change())
        status, body = answers(stream)
    finally:
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, (soft, hard))
    tell(status, body)


def orphan(daemon, port_file):
    """Ends the daemon, and asks the next one."""
    global port
    os.kill(daemon, 9)
    old = port

    def next_daemon():
        global port
        try:
            port = open(port_file).read().strip()
            return port != old and connect() is not None
        except OSError:
            return False

    until(next_daemon)
    attack()


def hidden():
    """No attacker, but a process that nobody else of its user may look at, as a key agent is."""
    LIBC.prctl(4, 0, 0, 0, 0)
    with open(result + ".tmp", "w") as file:
        file.write("hidden\n")
    os.rename(result + ".tmp", result)
    sys.stdin.read()


if kind == "plain":
    attack()
elif kind == "hidden":
    hidden()
elif kind == "address":
    attack(connect(more[0]))
elif kind == "headers":
    attack(None, more)
elif kind == "hidden-plain":
    LIBC.prctl(4, 0, 0, 0, 0)
    attack()
elif kind == "stolen":
    # With the person's token, by a process that nobody else of its user may look at.
    LIBC.prctl(4, 0, 0, 0, 0)
    attack(None, [f"Authorization: Bearer {open(more[0]).read().strip()}"])
elif kind == "stolen-in-flight":
    unanswered(in_flight, [f"Authorization: Bearer {open(more[0]).read().strip()}"])
elif kind == "thread":
    threading.Thread(target=own_table).start()
elif kind == "leader":
    threading.Thread(target=after_leader).start()
    LIBC.syscall(EXIT, 0)
elif kind == "in-flight":
    unanswered(in_flight)
elif kind == "in-ring":
    unanswered(in_ring)
elif kind == "starve":
    starve(int(more[0]))
elif kind == "orphan":
    orphan(int(more[0]), more[1])
