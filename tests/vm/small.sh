# In the machine of tests/vm/run with a disk: agents that each hold 300 MB, on a machine that has that for one or two at a time.
# They are started at once, and go on one after another; meanwhile the daemon is asked for its health without a pause.
# Words of the kernel's command line say how much: agents (6), hold (seconds, 20), ways (both; with or without control groups).
set -eu
agents=${agents:-6} hold=${hold:-20} ways=${ways:-both}
PATH=/disk/bin:$PATH

# What a program is can be put out of memory and read again only where it came from a disk.
mkdir -p /disk/bin /disk/project/.svc
mv /bin/svc /disk/bin/svc
cat >/disk/bin/codex <<'CODEX'
#!/bin/sh
# Speaks as Codex does, and holds 300 MB: what waits to be written to a pipe stays in memory.
case ${1:-} in
    --version) echo codex-cli 0.169.0; exit ;;
    login) echo "Logged in using ChatGPT"; exit ;;
esac
cat >/dev/null
echo "{\"type\":\"thread.started\",\"thread_id\":\"thread-$SVC_AGENT_NAME\"}"
echo '{"type":"turn.started"}'
pipe=pipe-$SVC_AGENT_NAME
mkfifo "$pipe"
dd if=/dev/zero of="$pipe" bs=300M count=1 2>/dev/null &
exec 3<"$pipe"
head -c 1 <&3 >/dev/null
read -r up rest </proc/uptime
echo "$up 1 $(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$!/status") $SVC_AGENT_NAME" >>held
sleep "$(cat hold)"
read -r up rest </proc/uptime
echo "$up -1 0 $SVC_AGENT_NAME" >>held
exec 3<&-
wait
rm "$pipe"
echo '{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":5}}'
CODEX
chmod 755 /disk/bin/codex
echo "$hold" >/disk/project/hold
chown -R 1000:1000 /disk/project
uname -r
echo "memory: $(awk '/^MemTotal|^MemAvailable/ { printf "%d MB ", $2 / 1024 }' /proc/meminfo)(all, free)"

now() { read -r up rest </proc/uptime; now=${up%.*}${up#*.}; }
# The same work as on the host: how much slower this machine is.
now
began=$now
n=0
while [ "$n" -lt 100000 ]; do n=$((n + 1)); done
now
echo "100000 rounds: $((now - began)) hundredths of a second"

# Asks for the health of the daemon by one connection until told to end; each answer in hundredths of a second, and the pressure.
asks() {
    rm -f /tmp/in /tmp/out
    mkfifo /tmp/in /tmp/out
    nc 127.0.0.1 "$1" </tmp/in >/tmp/out &
    exec 3>/tmp/in 4</tmp/out
    end=$(printf '\r')
    while [ ! -e /tmp/over ]; do
        now
        asked=$now
        printf 'GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' >&3
        while read -r name value <&4 && [ "$name" != "$end" ]; do
            case $name in [Cc]ontent-[Ll]ength:) length=${value%?} ;; esac
        done
        read -r -n "$length" body <&4
        now
        case $body in *'"status"'*) ;; *) echo "FAILED: no health but '$body'" ;; esac
        while read -r kind share rest; do [ "$kind" != full ] || full=${share#avg10=}; done </proc/pressure/memory
        echo "$((now - asked)) $full $asked" >>/tmp/health
        sleep 0.1
    done
}

cat >/home/alice/try <<'TRY'
set -eu
cd /disk/project
fail() {
    echo "FAILED: $*"
    /disk/bin/svc agents --json </dev/null || true
    /disk/bin/svc capacity </dev/null || true
    tail -n 20 held /tmp/said
    exit 1
}
n=0
while [ "$n" -lt "$1" ]; do
    n=$((n + 1))
    /disk/bin/svc spawn dev --name "agent-$n" --provider codex go </dev/null || fail "agent-$n was not started"
done
limit=$(($(cut -d . -f 1 /proc/uptime) + 60 + $1 * (30 + $2)))
until [ "$(/disk/bin/svc agents --json </dev/null | grep -c '"state": "completed"')" = "$1" ]; do
    [ "$(cut -d . -f 1 /proc/uptime)" -lt "$limit" ] || fail "not all have completed"
    sleep 2
done
[ "$(awk '$2 == 1 && $3 >= 300' held | wc -l)" = "$1" ] || fail "not all have held 300 MB"
TRY

# $1: how it is told; $2: what is to stand in the daemon's log; then what starts the daemon.
way() {
    name=$1 words=$2
    shift 2
    rm -rf /disk/project/.svc/state /disk/project/held /tmp/health /tmp/over
    : >/tmp/said
    "$@" >/tmp/said 2>&1 &
    until grep -q '^next:' /tmp/said; do kill -0 $! || { cat /tmp/said; exit 1; }; sleep 1; done
    grep -q "$words" /tmp/said || { echo "FAILED: no '$words'"; cat /tmp/said; exit 1; }
    asks "$(grep -o '127.0.0.1:[0-9]*' /tmp/said | head -n 1 | cut -d : -f 2)" &
    asker=$!
    now
    began=$now
    su alice -c "sh /home/alice/try $agents $hold"
    now
    touch /tmp/over
    wait "$asker"
    daemon=$(pidof svc | tr ' ' '\n' | sort -n | head -n 1)
    echo "$name: $agents agents of 300 MB completed in $(((now - began) / 100)) s," \
        "most at once: $(sort -n /disk/project/held | awk '{ n += $2; if (n > most) most = n } END { print most }')"
    echo "$name: full avg10 at most: $(sort -n -k 2 /tmp/health | tail -n 1 | cut -d ' ' -f 2)," \
        "programs ended by the kernel: $(awk '/^oom_kill / { print $2 }' /proc/vmstat)," \
        "the daemon held at most: $(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$daemon/status") MB"
    sort -n /tmp/health | awk -v name="$name" '{ all[NR] = $1 * 10 }
        END { print name ": health asked " NR " times, half of them within " all[int((NR + 1) / 2)] " ms, 99 % within " \
            all[int(NR * 0.99)] " ms, answered at most in ms: " all[NR] }'
    su alice -c 'cd /disk/project; /disk/bin/svc stop' </dev/null
}

group=/sys/fs/cgroup/alice
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $group
chown 1000:1000 $group $group/cgroup.procs $group/cgroup.subtree_control
[ "$ways" = without ] || way 'with control groups' 'each agent has a control group' \
    sh -c "echo \$\$ >$group/cgroup.procs; exec su alice -c 'cd /disk/project; exec /disk/bin/svc start --port 0'"
[ "$ways" = with ] || way 'without control groups' 'no control groups of their own' \
    su alice -c 'cd /disk/project; exec /disk/bin/svc start --port 0'
