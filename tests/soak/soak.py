#!/usr/bin/env python3
"""A long run of the whole daemon: mixed work of all features, its use of the machine sampled, a table and a
picture.

tests/soak/soak.py --svc target/release/svc --minutes 60 --out target/soak [--rate 3] [--seed 1]

Three parts: in the first sixth agents come quickly, until the daemon has as many ended ones as it keeps; in
the next third it is restarted now and then, its agents kept; in the last half it lives undisturbed. What
grows from part to part shows in the second, what leaks shows in the third: each figure's slope there is
fitted to a line and held against its bound. Only the standard library of Python 3 is used. Everything is on
this machine's loopback.
"""

import argparse, base64, collections, http.client, json, os, random, shutil, socket, statistics
import subprocess, sys, tempfile, threading, time

from report import write_report

# Seconds between two samples: a run of an hour has 360, one of a day 8 640.
SAMPLE_SECONDS = 10
# Agents alive at most; a new one waits until one has ended.
MAX_LIVE = 12
# Clients of the WebSocket; one of them never reads.
CLIENTS = 4
# Seconds that one call may take before it counts as a failure.
CALL_LIMIT = 30
# Seconds from a start to the first answer, at most.
START_LIMIT = 60

SCENARIOS = {
    "work": [
        {"say": "I begin: {{prompt}}"},
        {"write": {"path": "out/{{name}}.txt", "text": "{{agentId}}\n"}},
        {"run": {"command": "ls | head", "timeoutMs": 5000}},
        {"usage": {"input": 900, "output": 80, "cacheRead": 2000}},
        {"sleepMs": 800},
        {"answer": "done"},
    ],
    "long": [
        {"loop": {"times": 120, "steps": [{"say": "still at it, says {{name}}"}, {"sleepMs": 250}]}},
        {"usage": {"input": 3000, "output": 400}},
        {"answer": "that was all"},
    ],
    "loud": [
        {"flood": {"lines": 400, "bytes": 120}},
        {"usage": {"input": 100, "output": 10}},
        {"answer": "said"},
    ],
    "asks": [
        {"usage": {"input": 200, "output": 15}},
        {"ask": "Which colour?"},
        {"answer": "I take {{message}}."},
    ],
}
MODELS = ["work"] * 5 + ["long"] * 3 + ["loud", "asks", "asks", "crash", "degrading", "default"]


class Soak:
    """The daemon under the load, and what was seen of it."""

    def __init__(self, options):
        self.options = options
        self.dice = random.Random(options.seed)
        self.folder = tempfile.mkdtemp(prefix="svc-soak-")
        self.environment = dict(os.environ, XDG_CONFIG_HOME=self.folder + "/.config")
        self.lock = threading.Lock()
        self.calls = collections.Counter()
        self.failures = collections.Counter()
        self.took = []
        self.samples = []
        self.heard = 0
        self.ending = False
        self.process = None
        self.address = ("127.0.0.1", 0)
        self.restarts = []
        self.numbers = iter(range(1, 1 << 40))
        self.prepare()

    def prepare(self):
        """A project with sources, a history and the scenarios."""
        for name, steps in SCENARIOS.items():
            self.write(f".svc/rehearsals/{name}.json", json.dumps({"description": name, "steps": steps}))
        self.write(".svc/config.json", json.dumps({"maxAgents": MAX_LIVE + 20}))
        for number in range(200):
            self.write(f"src/part{number % 20}/file{number}.rs", f"// file {number}\nfn f{number}() {{}}\n")
        git = ["git", "-c", "user.name=soak", "-c", "user.email=soak@localhost"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
            subprocess.run(git + command, cwd=self.folder, check=True)

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    # The daemon's life

    def start(self):
        began = time.monotonic()
        self.process = subprocess.Popen(
            [self.options.svc, "start", "--port", "0", "--project", self.folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            raise SystemExit(f"the daemon did not start: {line!r}")
        port = int(line.split()[2].rsplit(":", 1)[1])
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.address = ("127.0.0.1", port)
        while time.monotonic() - began < START_LIMIT:
            if self.call("GET", "/api/health", ask=True) is not None:
                return
        raise SystemExit("the daemon does not answer after its start")

    def stop(self, keep):
        self.call("POST", "/api/shutdown" + ("?keep=true" if keep else ""), {})
        self.process.wait(timeout=120)

    def restart(self):
        """Agents go on meanwhile: their keepers hold them."""
        before = self.call("GET", "/metrics", raw=True) or ""
        self.stop(keep=True)
        began = time.monotonic()
        self.start()
        self.restarts.append(
            {
                "at": self.now(),
                "seconds": round(time.monotonic() - began, 2),
                "panics": metric(before, "svc_panics_total"),
            }
        )

    def now(self):
        return time.monotonic() - self.began

    # Calls

    def call(self, method, path, body=None, ask=False, raw=False):
        """The answer's JSON (or text), or None for anything but 2xx; a 5xx and a broken line are failures."""
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(*self.address, timeout=CALL_LIMIT)
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            connection.close()
        except OSError as error:
            if not ask:
                self.fail(f"{method} {plain(path)}: {type(error).__name__}")
            return None
        with self.lock:
            self.calls[f"{method} {plain(path)}"] += 1
            self.took.append(time.monotonic() - began)
        if response.status >= 500:
            self.fail(f"{method} {plain(path)}: {response.status} {data[:120]!r}")
        if not 200 <= response.status < 300:
            return None
        return data.decode() if raw else json.loads(data or b"null")

    def fail(self, what):
        with self.lock:
            self.failures[what] += 1

    # The work

    def agents(self):
        return self.call("GET", "/api/agents") or []

    def spawn(self):
        agents = self.agents()
        if sum(agent["status"] == "active" for agent in agents) >= MAX_LIVE:
            return
        number = next(self.numbers)
        body = {
            "role": self.dice.choice(["dev", "qa", "docs"]),
            "provider": "script",
            "model": self.dice.choice(MODELS),
            "prompt": f"task {number}",
        }
        if self.dice.random() < 0.2:
            body["scope"] = [f"src/part{self.dice.randrange(20)}/**"]
        self.call("POST", "/api/agents", body)

    def some_agent(self, state=None):
        live = [
            agent
            for agent in self.agents()
            if agent["status"] == "active" and state in (None, agent["state"])
        ]
        return self.dice.choice(live) if live else None

    def talk(self):
        agent = self.some_agent("waiting") or self.some_agent()
        if agent:
            self.call("POST", f"/api/agents/{agent['id']}/instruct", {"message": "blue", "deliver": "auto"})

    def query(self):
        agent = self.some_agent()
        if agent:
            self.call("POST", f"/api/agents/{agent['id']}/query", {"question": "how far?"})

    def rotate(self):
        agent = self.some_agent("waiting")
        if agent:
            self.call("POST", f"/api/agents/{agent['id']}/rotate", {})

    def end(self):
        agent = self.some_agent("waiting")
        if agent:
            self.call("DELETE", f"/api/agents/{agent['id']}")

    def resume(self):
        ended = [agent for agent in self.agents() if agent["status"] != "active"]
        if ended and self.dice.random() < 0.3:
            self.call("POST", f"/api/agents/{self.dice.choice(ended)['id']}/resume", {"message": "go on"})

    def approvals(self):
        agent = self.some_agent()
        if agent:
            question = f"may I, number {next(self.numbers)}?"
            self.call("POST", "/api/questions", {"agentId": agent["id"], "question": question})
            self.call(
                "POST",
                "/api/pm/review",
                {
                    "agentId": agent["id"],
                    "action": "write",
                    "file": "src/part1/file1.rs",
                    "description": "a change",
                },
            )
        for approval in (self.call("GET", "/api/approvals") or {}).get("pending", [])[:3]:
            word = self.dice.choice(["approve", "reject"])
            self.call("POST", f"/api/approvals/{approval['id']}/{word}", {"reason": "because"})

    def locks(self):
        agent = self.some_agent()
        if agent:
            body = {
                "agentId": agent["id"],
                "operation": "build",
                "resources": [f"thing{self.dice.randrange(6)}"],
            }
            if self.call("POST", "/api/coordination/declare", dict(body, ttlMs=60000)):
                self.call("GET", "/api/coordination")
                self.call("POST", "/api/coordination/complete", {"agentId": agent["id"]})

    def memory(self):
        number = next(self.numbers) % 400
        self.call(
            "POST", "/api/memory/constraints", {"text": f"rule {number}: keep part {number % 20} as it is"}
        )
        self.call(
            "POST",
            "/api/memory/discoveries",
            {"trigger": f"error {number}", "role": "dev", "fix": f"do {number}", "outcome": "success"},
        )
        known = (self.call("GET", "/api/memory/constraints") or {}).get("constraints", [])
        if len(known) > 50:
            self.call("DELETE", f"/api/memory/constraints/{known[0]['hash']}")

    def schedules(self):
        known = self.call("GET", "/api/schedules") or []
        known = known if isinstance(known, list) else known.get("schedules", [])
        if len(known) < 3:
            self.call(
                "POST",
                "/api/schedules",
                {
                    "name": f"plan-{next(self.numbers)}",
                    "cron": "*/2 * * * *",
                    "agent": {"role": "qa", "provider": "script", "model": "work", "prompt": "look around"},
                },
            )
        elif self.dice.random() < 0.5:
            self.call("POST", f"/api/schedules/{known[0]['id']}/run", {})
        else:
            self.call("DELETE", f"/api/schedules/{known[0]['id']}")

    def files(self):
        number = self.dice.randrange(20)
        path = f"notes/note{number}.txt"
        self.call("POST", "/api/files/write", {"path": path, "content": "x" * self.dice.randrange(4000)})
        self.call("GET", f"/api/files/read?path={path}")
        self.call("GET", "/api/files/tree?path=src")
        self.call("GET", "/api/files/git-status")
        if self.dice.random() < 0.3:
            self.call("DELETE", f"/api/files/delete?path={path}")

    def index(self):
        self.call("POST", "/api/indexer/rescan", {})
        self.call("GET", "/api/indexer")

    def teams(self):
        live = [agent["name"] for agent in self.agents() if agent["status"] == "active"]
        name = f"team-{self.dice.randrange(5)}"
        if live and not self.call("GET", f"/api/teams/{name}"):
            self.call("POST", "/api/teams", {"name": name, "agents": live[:2]})
        elif self.dice.random() < 0.5:
            self.call("DELETE", f"/api/teams/{name}")
        if self.dice.random() < 0.2:
            body = {
                "agents": [
                    {"role": "dev", "prompt": "a part", "provider": "script", "model": "work", "phase": 1},
                    {"role": "qa", "prompt": "a look", "provider": "script", "model": "work", "phase": 2},
                ]
            }
            self.call("POST", "/api/recommended-team/launch", body)

    def look(self):
        for path in (
            "/api/dashboard",
            "/api/timeline",
            "/api/audit",
            "/metrics",
            "/api/status",
            "/api/tokens/summary",
            "/api/rotation",
            "/api/conflicts",
            "/api/journalist",
            "/api/openapi.json",
        ):
            self.call("GET", path, raw=True)
        agents = self.agents()
        if agents:
            one = self.dice.choice(agents)["id"]
            self.call("GET", f"/api/agents/{one}/log?limit=200")
            self.call("GET", f"/api/agents/{one}/brief", raw=True)

    def settings(self):
        self.call("PATCH", "/api/config", {"qcThreshold": self.dice.randrange(2, 9)})
        self.call(
            "POST", "/api/credentials", {"provider": "soak", "key": f"key-{next(self.numbers)}-of-nobody"}
        )
        self.call("DELETE", "/api/credentials/soak")

    def journalist(self):
        self.call("POST", "/api/journalist/cycle", {})

    WORK = [
        ("spawn", 10),
        ("talk", 6),
        ("query", 2),
        ("rotate", 1),
        ("end", 3),
        ("resume", 1),
        ("approvals", 3),
        ("locks", 4),
        ("memory", 3),
        ("schedules", 1),
        ("files", 4),
        ("index", 1),
        ("teams", 2),
        ("look", 3),
        ("settings", 1),
        ("journalist", 1),
    ]

    def work(self):
        """One piece of work after the other at the rate asked for, until the time is over."""
        names = [name for name, _ in self.WORK]
        weights = [weight for _, weight in self.WORK]
        length = self.options.minutes * 60
        stops = [length * part / 24 for part in (5, 7, 9, 11)]
        due = time.monotonic()
        while self.now() < length:
            early = self.now() < length / 6
            name = "spawn" if early and self.dice.random() < 0.5 else self.dice.choices(names, weights)[0]
            if early and self.dice.random() < 0.3:
                name = "end"
            getattr(self, name)()
            if stops and self.now() > stops[0]:
                stops.pop(0)
                self.restart()
            due = max(due + 1 / self.options.rate / (2 if early else 1), time.monotonic() - 5)
            time.sleep(max(0, due - time.monotonic()))

    # Clients

    def client(self, reads):
        """A WebSocket client that comes again whenever it is cut off; one that does not read is cut off
        often.
        """
        while not self.ending:
            try:
                with socket.create_connection(self.address, timeout=5) as line:
                    key = base64.b64encode(os.urandom(16)).decode()
                    line.sendall(
                        (
                            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{self.address[1]}\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                            f"Sec-WebSocket-Key: {key}\r\n\r\n"
                        ).encode()
                    )
                    stay = time.monotonic() + self.dice.uniform(20, 120)
                    while not self.ending and time.monotonic() < stay:
                        if not reads:
                            time.sleep(1)
                            continue
                        try:
                            data = line.recv(65536)
                        except TimeoutError:
                            continue
                        if not data:
                            break
                        self.heard += len(data)
            except OSError:
                pass
            time.sleep(0.5)

    # Samples

    def sample(self):
        while not self.ending:
            self.take()
            wait = time.monotonic() + SAMPLE_SECONDS
            while not self.ending and time.monotonic() < wait:
                time.sleep(0.2)

    def take(self):
        pid = self.process.pid
        try:
            rollup = open(f"/proc/{pid}/smaps_rollup").read()
            row = {
                "at": round(self.now(), 1),
                "pid": pid,
                "rss": kilobytes(rollup, "Rss:"),
                "pss": kilobytes(rollup, "Pss:"),
                "private": kilobytes(rollup, "Private_Dirty:"),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": len(os.listdir(f"/proc/{pid}/task")),
            }
        except OSError:
            return
        with self.lock:
            took, self.took = sorted(self.took), []
        row["requests"] = len(took)
        if took:
            row["p50"] = 1000 * statistics.median(took)
            row["p99"] = 1000 * took[min(len(took) - 1, len(took) * 99 // 100)]
            row["worst"] = 1000 * took[-1]
        row["keepers"], row["keeperPss"] = keepers(self.options.svc)
        row["disk"], row["files"], row["places"] = disk(self.folder + "/.svc")
        metrics = self.call("GET", "/metrics", ask=True, raw=True) or ""
        # Just while it is restarted, there is none to ask.
        if metrics:
            row["agents"] = metric(metrics, "svc_agents")
            row["live"] = metric(metrics, "svc_agents_live")
            row["panics"] = metric(metrics, "svc_panics_total")
        self.samples.append(row)

    def run(self):
        self.began = time.monotonic()
        self.start()
        threads = [threading.Thread(target=self.client, args=(number > 0,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self.sample))
        try:
            for thread in threads:
                thread.start()
            self.work()
        finally:
            self.ending = True
            for thread in threads:
                thread.join()
            if self.process.poll() is None:
                self.stop(keep=False)
        left = keepers(self.options.svc)[0]
        if left:
            self.fail(f"{left} keepers are left after the end")
        shutil.rmtree(self.folder, ignore_errors=True)


def plain(path):
    """A path without its query and ids, so that calls can be counted."""
    parts = path.split("?")[0].split("/")
    kinds = {"agents", "schedules", "approvals", "teams", "constraints", "credentials"}
    return "/".join("{id}" if at and parts[at - 1] in kinds else part for at, part in enumerate(parts))


def kilobytes(rollup, name):
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(name))


def metric(text, name):
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)


def keepers(svc):
    """How many keepers of this program live, and their memory in kB. None of another program is counted."""
    count = total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            if b"__keep" in words and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(svc):
                total += kilobytes(open(f"/proc/{pid}/smaps_rollup").read(), "Pss:")
                count += 1
        except (OSError, StopIteration):
            continue
    return count, total


def disk(folder):
    """Bytes and files below a folder, and the bytes of each entry of its top."""
    places, count = collections.Counter(), 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size = os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
            top = os.path.relpath(os.path.join(root, name), folder).split(os.sep)[0]
            places[top] += size
            count += 1
    return sum(places.values()), count, dict(places)


def main():
    parser = argparse.ArgumentParser(description="a long run of the whole daemon")
    parser.add_argument("--svc", default="target/release/svc")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=3, help="pieces of work a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="target/soak")
    options = parser.parse_args()
    options.svc = os.path.abspath(options.svc)
    os.makedirs(options.out, exist_ok=True)
    soak = Soak(options)
    soak.run()
    found = {
        "minutes": options.minutes,
        "rate": options.rate,
        "seed": options.seed,
        "samples": soak.samples,
        "restarts": soak.restarts,
        "calls": dict(soak.calls),
        "failures": dict(soak.failures),
        "heard": soak.heard,
    }
    with open(os.path.join(options.out, "samples.json"), "w") as file:
        json.dump(found, file)
    sys.exit(write_report(found, options.out))


if __name__ == "__main__":
    main()
