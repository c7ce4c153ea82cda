#!/usr/bin/env python3
"""What many projects of one user cost in memory, and how quick their one door is.

    benches/projects.py PROGRAM [PROJECTS [AGENTS [SECONDS]]]

Starts PROJECTS daemons (20) of one user behind one door, each with AGENTS rehearsed agents (5), waits SECONDS
(20), and prints the proportional (PSS) and the private memory of daemons, keepers, rooms and the agents' own
program, and how long the door's page, `svc ps` and `svc top --all` take. MODEL=quick (the default) is agents
that have ended their turn, MODEL=ask such that have asked a person and wait with their program. PROGRAM is
best the optimised one: `cargo build --locked --profile dist`. All of it lies in a temporary folder.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = os.path.abspath(sys.argv[1])
PROJECTS, AGENTS, SECONDS = map(int, sys.argv[2:] + ["20", "5", "20"][len(sys.argv) - 2 :])
# What they run: see the list of scenarios in docs/rehearsals.md.
MODEL = os.environ.get("MODEL", "quick")
PARTS = ["Pss", "Pss_Anon", "Pss_File", "Private"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def rollup(pid):
    """Kilobytes of one process."""
    told = dict.fromkeys(PARTS, 0)
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[0].rstrip(":"), int(line.split()[1])
        if name in told:
            told[name] += size
        if name in ("Private_Clean", "Private_Dirty"):
            told["Private"] += size
    return told


def kind_of(pid):
    """Which of the processes it is, by its arguments."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if not words[0]:
        return None
    kinds = {b"start": "daemons", b"__keep": "keepers", b"__cage": "rooms", b"agent-script": "the agents' own program"}
    return kinds.get(words[1]) if len(words) > 1 else None


def below(pids):
    """These processes and all that come from them."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry))
    found, todo = [], list(pids)
    while todo:
        at = todo.pop()
        found.append(at)
        todo += children.get(at, [])
    return found


def ask(url, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    return urllib.request.urlopen(request, timeout=60).read()


def main():
    home = pathlib.Path(tempfile.mkdtemp(prefix="svc-projects-"))
    config = home / ".config/svc"
    config.mkdir(parents=True)
    door = free_port()
    settings = {"port": 0, "door": door, "maxAgents": 1000, "governor": {"admit": "off"}}
    (config / "config.json").write_text(json.dumps(settings))
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    daemons = []
    try:
        for n in range(PROJECTS):
            project = home / f"project-{n}"
            project.mkdir()
            with open(home / f"{n}.out", "w") as out:
                daemons.append(subprocess.Popen([PROGRAM, "start"], cwd=project, env=environment, stdout=out,
                                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
        for n in range(PROJECTS):
            until = time.time() + 60
            while True:
                try:
                    name = f"project-{n}"
                    url = json.loads((config / f"daemons/{name}.json").read_text())["url"]
                    if url and json.loads(ask(f"{url}/api/health"))["status"] == "ok":
                        break
                except (OSError, ValueError, KeyError):
                    pass
                assert time.time() < until, (home / f"{n}.out").read_text()
                time.sleep(0.1)
            for k in range(AGENTS):
                body = {"role": "dev", "name": f"dev-{k}", "provider": "script", "model": MODEL, "prompt": "go"}
                ask(f"{url}/api/agents", body)
            until = time.time() + 120
            while AGENTS:
                told = json.loads(ask(f"{url}/api/agents"))
                told = told if isinstance(told, list) else told["agents"]
                if len(told) == AGENTS and all(is_idle(one) for one in told):
                    break
                assert time.time() < until, told
                time.sleep(0.1)
        time.sleep(SECONDS)
        report([daemon.pid for daemon in daemons])
        pages(door, environment)
    finally:
        for daemon in daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            daemon.wait()
        shutil.rmtree(home)


def is_idle(agent):
    return agent["state"] in ("idle", "completed") or agent["currentActivity"] == "Which colour?"


def report(pids):
    kinds = {}
    for pid in below(pids):
        kind = kind_of(pid)
        if kind:
            kinds.setdefault(kind, []).append(rollup(pid))
    print(f"{PROJECTS} projects, {AGENTS} agents ({MODEL}) each; in MB of 1 000 000 bytes")
    print(f"{'':28}{'count':>6}" + "".join(f"{part:>12}" for part in PARTS) + f"{'median Pss':>12}{'largest':>10}")
    for kind, all_of in kinds.items():
        sums = [sum(one[part] for one in all_of) * 1.024 / 1000 for part in PARTS]
        each = [one["Pss"] * 1.024 / 1000 for one in all_of]
        print(f"{kind:28}{len(all_of):6}" + "".join(f"{size:12.2f}" for size in sums)
              + f"{statistics.median(each):12.3f}{max(each):10.3f}")


def pages(door, environment):
    def svc(*words):
        return len(subprocess.run([PROGRAM, *words], env=environment, cwd="/", stdout=subprocess.PIPE).stdout)

    for what, go in [
        ("the door's page", lambda: len(ask(f"http://127.0.0.1:{door}/"))),
        ("svc ps", lambda: svc("ps")),
        ("svc top --all --once", lambda: svc("top", "--all", "--once")),
    ]:
        times = []
        for _ in range(11):
            began = time.perf_counter()
            length = go()
            times.append((time.perf_counter() - began) * 1000)
        print(f"{what:28}{statistics.median(times):10.1f} ms (longest {max(times):.1f}), {length} bytes")


main()
