# In the machine of tests/vm/run with a disk: the first time, changes until the power is cut behind the last one that was
# acknowledged; the second time, all of them have to be there.
set -eu
mkdir -p /disk/project
chown 1000:1000 /disk/project
cat >/home/alice/try <<'TRY'
set -eu
svc() { /bin/svc "$@" </dev/null; }
cd /disk/project
svc start --background --port 0 || { cat .svc/daemon.log; exit 1; }
if [ ! -e .svc/rehearsals/waits.json ]; then
    mkdir -p .svc/rehearsals
    echo '{"steps": [{"ask": "Which colour?"}, {"answer": "done"}]}' >.svc/rehearsals/waits.json
    sync
    # On so small a machine all but the first would wait for room, and go on waiting after the cut.
    svc config set governor.admit off
    for n in 1 2 3 4; do
        svc spawn dev --name "agent-$n" --provider script --model waits "Task $n"
        svc memory rule "Rule number $n"
        svc schedule add '0 3 * * *' dev "Run $n" --name "night-$n" --provider script --model waits
        svc config set maxAgents "$((20 + n))"
    done
    echo ALL ACKNOWLEDGED
    cat
fi
lacks() { echo "LOST: $1"; cat found; exit 1; }
for n in 1 2 3 4; do
    svc agents --json >found
    grep -qF "\"agent-$n\"" found || lacks "agent $n"
    svc memory rules >found
    grep -qF "Rule number $n" found || lacks "rule $n"
    svc schedule list >found
    grep -qF "night-$n" found || lacks "schedule $n"
    # Its process went with the machine, and nobody may say otherwise.
    svc agents --live --names >found
    ! grep -qF "agent-$n" found || lacks "the end of agent $n"
done
svc config get maxAgents >found
grep -qF 24 found || lacks "the setting"
svc stop
TRY
su alice -c 'sh /home/alice/try'
