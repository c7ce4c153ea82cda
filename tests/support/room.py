"""What an agent tries from inside of its room: python3 room.py RESULT DAEMON_PID PROJECT OUTSIDE KEY_RING

Each try returns None when it came to nothing, else what it got. OUTSIDE is a folder of the machine that the room does
not share, KEY_RING the number of the key ring outside. The result is JSON: {name of the try: null or what it got}.
"""
import ctypes
import glob
import json
import os
import signal
import socket
import subprocess
import sys

home = os.path.expanduser("~")
libc = ctypes.CDLL(None, use_errno=True)


def key_ring():
    """The session's: keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0)."""
    return libc.syscall({"x86_64": 250}.get(os.uname().machine, 219), 0, -3, 0)


if sys.argv[1] == "--key-ring":
    print(key_ring())
    sys.exit()
result, daemon, project, outside = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
outside_ring = int(sys.argv[5])

tries = []


def attempt(deed):
    tries.append(deed)
    return deed


def run(*line):
    return subprocess.run(line, capture_output=True, text=True, timeout=20)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(64) or None
    except OSError:
        return None


def write(path):
    try:
        with open(path, "a") as file:
            file.write("got in\n")
        return "written: " + path
    except OSError:
        return None


@attempt
def door_key_of_the_daemon():
    return read(project + "/.svc/token")


@attempt
def state_of_the_daemon():
    found = [path for path in glob.glob(project + "/.svc/*") + glob.glob(project + "/.svc/state/*")]
    own = {"sessions", "rehearsals", "skills", "recommended-team.json"}
    return [path for path in found if os.path.basename(path) not in own] or None


@attempt
def settings_of_the_daemon():
    """What is written there is gone with the room: no later daemon reads it."""
    os.makedirs(project + "/.svc/state", exist_ok=True)
    write(project + "/.svc/config.json")


@attempt
def key_of_the_vault():
    return read(project + "/.svc/credentials.key")


@attempt
def rooms_and_worktrees_of_others():
    return glob.glob(project + "/.svc/rooms/*") + glob.glob(project + "/.svc/worktrees/*") or None


@attempt
def environment_of_the_daemon():
    return read("/proc/%d/environ" % daemon)


@attempt
def processes_outside():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        line = read(path) or b""
        if b"\0start\0" in line:
            return line.decode("utf-8", "replace")


@attempt
def signal_to_the_daemon():
    """Process ids of outside mean nothing inside."""
    try:
        os.kill(daemon, signal.SIGKILL)
        return "there is such a process"
    except OSError:
        return None


@attempt
def trace_of_the_first_process():
    """Process 1 of the room may not be looked into."""
    return "attached" if libc.ptrace(16, 1, 0, 0) == 0 else None


@attempt
def memory_of_the_first_process():
    return read("/proc/1/environ") if os.getuid() != 0 else None


@attempt
def file_outside():
    return write(outside + "/new") or write(outside + "/victim")


@attempt
def system_files():
    return write("/etc/svc-room") or write("/usr/svc-room") or write("/svc-room")


@attempt
def mode_owner_and_time_outside():
    victim = outside + "/victim"
    deeds = [
        lambda: os.chmod(victim, 0o777),
        lambda: os.chown(victim, os.getuid(), os.getgid()),
        lambda: os.utime(victim, (1, 1)),
        lambda: os.setxattr(victim, "user.svc", b"x"),
        lambda: os.truncate(victim, 0),
        lambda: os.unlink(victim),
        lambda: os.rename(victim, outside + "/moved"),
        lambda: os.link(victim, project + "/linked"),
        lambda: os.symlink("/", outside + "/link"),
        lambda: os.mkdir(outside + "/folder"),
        lambda: os.mkfifo(outside + "/pipe"),
    ]
    for number, deed in enumerate(deeds):
        try:
            deed()
            return "deed %d" % number
        except OSError:
            pass


@attempt
def descriptor_reopened_for_writing():
    try:
        held = os.open(outside + "/victim", os.O_RDONLY)
        os.close(os.open("/proc/self/fd/%d" % held, os.O_WRONLY))
        return "reopened"
    except OSError:
        return None


@attempt
def machine_remounted():
    """MS_REMOUNT | MS_BIND without MS_RDONLY."""
    return "remounted" if libc.mount(None, b"/", None, 0x20 | 0x1000, None) == 0 else None


@attempt
def covers_taken_off():
    for place in ("/run", "/tmp", "/proc", "/dev", project + "/.svc"):
        if libc.umount2(place.encode(), 2) == 0:
            return "taken off: " + place


@attempt
def covers_taken_off_in_a_namespace_of_its_own():
    script = (
        "umount -l /run && echo off; umount -l '%s/.svc' && echo off; mount -o remount,bind,rw / && echo rw; "
        "touch '%s/nested' && echo written; mkdir -p /tmp/b && mount --bind '%s' /tmp/b && "
        "ls /tmp/b/.svc | grep -E 'token|state|credentials'" % (project, outside, project)
    )
    return run("unshare", "-Urmpf", "--mount-proc", "sh", "-c", script + " 2>/dev/null").stdout.strip() or None


@attempt
def file_systems_of_its_own():
    """Mounting takes a capability that is gone."""
    made = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0
    return "mounted" if made else None


@attempt
def other_namespaces():
    for name in ("mnt", "pid", "user"):
        try:
            held = os.open("/proc/1/ns/" + name, os.O_RDONLY)
        except OSError:
            continue
        if os.readlink("/proc/1/ns/" + name) != os.readlink("/proc/self/ns/" + name):
            return "another " + name
        os.close(held)


@attempt
def root_left_by_chroot():
    os.mkdir("/tmp/jail")
    held = os.open("/", os.O_RDONLY)
    child = os.fork()
    if child == 0:
        try:
            os.chroot("/tmp/jail")
            os.fchdir(held)
            for _ in range(64):
                os.chdir("..")
            os.chroot(".")
            os.close(os.open(outside + "/chroot", os.O_WRONLY | os.O_CREAT))
            os._exit(1)
        except OSError:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return "written" if os.waitstatus_to_exitcode(status) else None


@attempt
def file_by_its_handle():
    """open_by_handle_at goes around names; it takes a capability over the machine."""
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.memmove(handle, (128).to_bytes(4, sys.byteorder), 4)
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, outside.encode(), handle, ctypes.byref(mount), 0) != 0:
        return None
    held = os.open("/", os.O_RDONLY)
    return "opened" if libc.open_by_handle_at(held, handle, os.O_RDONLY) >= 0 else None


@attempt
def device_of_a_disk():
    try:
        os.mknod("/tmp/disk", 0o060666, os.stat("/").st_dev)
        os.close(os.open("/tmp/disk", os.O_RDONLY))
        return "opened"
    except OSError:
        return None


@attempt
def devices_of_the_machine():
    usual = {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx", "pts", "shm"}
    return [name for name in os.listdir("/dev") if name not in usual] or None


@attempt
def kernel_messages_and_memory():
    return read("/dev/kmsg") or read("/dev/mem") or read("/proc/kcore") if os.getuid() != 0 else None


@attempt
def settings_of_the_kernel():
    """Opened and not written: they are the machine's."""
    places = ["/proc/sysrq-trigger", "/proc/sys/vm/swappiness", "/proc/sys/kernel/core_pattern"]
    for place in places + glob.glob("/proc/irq/*/smp_affinity") + glob.glob("/proc/bus/pci/*/*"):
        try:
            os.close(os.open(place, os.O_WRONLY))
            return "open for writing: " + place
        except OSError:
            pass


@attempt
def sockets_of_sessions_and_engines():
    places = ["/run/docker.sock", "/var/run/docker.sock", "/run/user/%d/bus" % os.getuid(), "/run/dbus/system_bus_socket"]
    places += [os.environ.get("SSH_AUTH_SOCK", "/nowhere")] + glob.glob("/tmp/ssh-*/agent.*") + glob.glob("/tmp/tmux-*/*")
    for place in places:
        try:
            socket.socket(socket.AF_UNIX).connect(place)
            return place
        except OSError:
            pass


@attempt
def secrets_of_the_home_folder():
    for name in (".ssh/id", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".claude/.credentials.json"):
        if read(os.path.join(home, name)):
            return name


@attempt
def home_folder_of_the_person():
    """It may write there, and the person's own stays as it is: the test looks from outside."""
    write(os.path.join(home, ".bashrc"))
    write(os.path.join(home, "new-of-the-agent"))


@attempt
def what_git_obeys():
    git = project + "/.git"
    got = write(git + "/config") or write(git + "/hooks/pre-commit")
    for place in (git, git + "/config", git + "/hooks", project, project + "/.svc"):
        try:
            os.rename(place, place + ".away")
            got = "moved away: " + place
        except OSError:
            pass
    return got


@attempt
def key_ring_of_the_session():
    """The same number as outside would be the same ring."""
    return "the same ring" if key_ring() == outside_ring and outside_ring > 0 else None


@attempt
def memory_shared_with_outside():
    return [name for name in os.listdir("/dev/shm")] or None


@attempt
def queues_of_outside():
    with open("/proc/sysvipc/shm") as shm, open("/proc/sysvipc/msg") as msg:
        return "some" if len(shm.readlines()) + len(msg.readlines()) > 2 else None


@attempt
def rights_by_a_setuid_program():
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    return None if status["NoNewPrivs"].strip() == "1" else "new privileges"


@attempt
def namespaces_with_more_rights():
    """Capabilities over mounts must not come back by becoming another user."""
    return "mounted" if "ok" in run("sh", "-c", "mount -t tmpfs none /mnt 2>/dev/null && echo ok").stdout else None


@attempt
def change_that_a_person_may_make():
    port = os.environ["SVC_DAEMON_URL"].rsplit(":", 1)[1]
    body = b'{"maxAgents": 99}'
    head = "PATCH /api/config HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(port))) as stream:
        stream.sendall((head % (port, len(body))).encode() + body)
        answer = stream.recv(4096)
    return None if b" 403 " in answer.split(b"\r\n")[0] else answer.decode()


def outcome(deed):
    try:
        got = deed()
    except Exception as error:  # a try that could not be made is looked at
        return "could not be tried: %r" % error
    return got.decode("utf-8", "replace") if isinstance(got, bytes) else got


told = {deed.__name__: outcome(deed) for deed in tries}
with open(result + ".tmp", "w") as file:
    json.dump(told, file)
os.rename(result + ".tmp", result)
# Everybody whom it can reach: the rest of the room, and not the daemon, which is asked afterwards.
os.kill(-1, signal.SIGKILL)
