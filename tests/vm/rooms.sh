# In the machine of tests/vm/run: an ordinary user's agents in their rooms and behind the kernel's fence, then without rooms.
# The busybox there has a program named svc of its own, so this one is named by its place.
set -eu
cat >/home/alice/try <<'TRY'
set -eu
svc() { /bin/svc "$@" </dev/null; }
fail() { echo "FAILED: $*"; svc agents --json || true; exit 1; }
# Whether what was printed last has these words.
has() { grep -qF -- "$1" said || { cat said; fail "no '$1'"; }; }
start() { svc start --background --port 0 >said 2>&1 || { cat said .svc/daemon.log; fail "no daemon"; }; }
# An agent that may write below src and tries to write beside it.
writes() {
    rm -f src/in out.txt
    svc spawn dev --name "$1" --provider script --model writes --scope 'src/**' --wait go || true
    svc logs "$1" >said
    [ ! -e out.txt ] || fail "$1 has written outside of its scope"
}

mkdir -p /home/alice/project/src /home/alice/project/.svc/rehearsals
cd /home/alice/project
cat >.svc/rehearsals/writes.json <<'STEPS'
{"steps": [{"run": {"command": "echo in >src/in && echo out >out.txt"}},
    {"run": {"command": "ls -d /proc/[0-9]* | wc -l; cat /home/alice/project/.svc/token"}}, {"answer": "done"}]}
STEPS

case $1 in
with-rooms)
    svc __cage --try >said && has '{"refusal":null}'
    start
    svc config set enforcement kernel
    svc doctor >said || true
    has "kernel fence: Landlock $2 holds back"
    has "rooms: each agent sees no process"
    writes in-a-room
    has 'Read-only file system'
    [ -e src/in ] || fail "nothing was written in the scope"
    has "can't open '/home/alice/project/.svc/token'"
    svc config set isolation.cage off
    writes fenced
    has 'Permission denied'
    [ -e src/in ] || fail "nothing was written in the scope"
    ;;
without-rooms)
    svc __cage --try >said && fail "there are rooms"
    start
    svc doctor >said || true
    has 'rooms: '
    has 'kernel.unprivileged_userns_clone'
    # The fence alone.
    svc config set isolation.cage auto
    writes alone
    has 'Permission denied'
    [ -e src/in ] || fail "nothing was written in the scope"
    svc config set isolation.cage require
    writes refused
    [ ! -e src/in ] || fail "an agent without a room has run"
    svc agents --json >said
    has '"statusReason": "it exited with code 126: svc: no room can be made: this system gives no user namespaces'
    ;;
without-a-fence)
    start
    svc config set enforcement kernel
    svc config set isolation.cage off
    writes open
    [ ! -e src/in ] || fail "an agent without the fence that was asked for has run"
    svc agents --json >said
    has '"statusReason": "it exited with code 126: '
    has 'this kernel has no Landlock'
    ;;
esac
svc stop
TRY
uname -r
if ! grep -q landlock /sys/kernel/security/lsm; then
    su alice -c "sh /home/alice/try without-a-fence"
    exit
fi
landlock=$(uname -r | grep -q '^6\.1\.' && echo 2 || echo 6)
su alice -c "sh /home/alice/try with-rooms $landlock"
sysctl -w kernel.unprivileged_userns_clone=0
su alice -c "sh /home/alice/try without-rooms"
