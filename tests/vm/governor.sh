# In the machine of tests/vm/run: an agent that takes memory without end is ended alone, first where its user may make control
# groups, then where nobody may. The busybox there has a program named svc of its own, so this one is named by its place.
set -eu
cat >/home/alice/try <<'TRY'
set -eu
svc() { /bin/svc "$@" </dev/null; }
fail() { echo "FAILED: $*"; svc agents --json || true; tail -n 20 eaten /tmp/said; exit 1; }
cd /home/alice/project
state() { svc agents --json | awk -F '"' -v name="$1" '$2 == "name" { own = $4 } $2 == "state" && own == name { print $4 }'; }
until_state() {
    svc wait "$1" --timeout 130s >said || true
    [ "$(state "$1")" = "$2" ] || fail "$1 is $(state "$1"), not $2"
}
rm -f eaten go
svc spawn dev --name modest --provider script --model modest go
until [ -e held ]; do sleep 1; done
svc spawn dev --name greedy --provider script --model greedy go
until_state greedy killed
svc agents --json >said
grep -q '"statusCode": "memory-ceiling"' said || fail "not for its memory"
grep '"statusReason": "ended alone' said
[ "$(state modest)" = running ] || fail "modest was ended, too"
# Of the last moment in which it took more, and of the first above the ceiling.
last=$(tail -n 1 eaten | cut -d ' ' -f 1)
over=$(awk '$2 > 64 { print $1; exit }' eaten)
over=${over:-$last}
echo "$1: took $(tail -n 1 eaten | cut -d ' ' -f 2) MB, the last of it $(echo "$over $last" | awk '{ print $2 - $1 }') s above 64 MB"
echo "$over $last" | awk '{ exit !($2 - $1 <= 2) }' || fail "it took more for too long"
touch go
until_state modest completed
rm held
svc stop
TRY
mkdir -p /home/alice/project/.svc/rehearsals
cd /home/alice/project
cat >.svc/rehearsals/greedy.json <<'STEPS'
{"steps": [{"run": {"command": "c=$(head -c 1048576 /dev/zero | tr '\\0' x); n=0; while :; do n=$((n + 1)); eval x$n=\\$c; read up rest </proc/uptime; read all own rest </proc/self/statm; echo $up $((own / 256)) >>eaten; done", "timeoutMs": 600000}}, {"answer": "done"}]}
STEPS
cat >.svc/rehearsals/modest.json <<'STEPS'
{"steps": [{"run": {"command": "dd if=/dev/zero bs=20M count=1 2>/dev/null | { touch held; until [ -e go ]; do sleep 1; done; }", "timeoutMs": 600000}}, {"answer": "done"}]}
STEPS
echo '{"governor": {"agentMegabytes": 64}}' >.svc/config.json
chown -R 1000:1000 /home/alice
uname -r
start() {
    # What the one before has said would be taken for the next one's.
    : >/tmp/said
    "$@" >/tmp/said 2>&1 &
    until grep -q '^next:' /tmp/said; do kill -0 $! || { cat /tmp/said; exit 1; }; sleep 1; done
}
log() { grep "$1" /tmp/said || { echo "FAILED: no '$1'"; cat /tmp/said; exit 1; }; }

group=/sys/fs/cgroup/alice
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $group
chown 1000:1000 $group $group/cgroup.procs $group/cgroup.subtree_control
start sh -c "echo \$\$ >$group/cgroup.procs; exec su alice -c 'cd project; exec /bin/svc start --port 0'"
log 'each agent has a control group'
su alice -c "sh /home/alice/try 'with control groups'"
[ -z "$(ls $group | grep svc-agent)" ] || { echo "FAILED: groups are left"; exit 1; }

rm -r .svc/state
start su alice -c 'cd project; exec /bin/svc start --port 0'
log 'no control groups of their own'
su alice -c "sh /home/alice/try 'without control groups'"
