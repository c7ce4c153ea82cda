"""What is asked of the two programs while every write is logged, and what of it must be there after a cut."""

import http.client, json, os, signal, subprocess, threading, time

# Seconds that one call may take.
CALL_LIMIT = 60
# Seconds from a start to the first answer.
START_LIMIT = 60
# Decided approvals of one round: the daemon keeps the last 50 of them.
APPROVALS = 45
# The key of the marketplace's writers.
KEY = "power-cuts"


class Program:
    """A started daemon or marketplace."""

    def __init__(self, words, environment):
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )
        self.lines = []
        line = self.process.stdout.readline()
        self.address = None
        if "http://" in line:
            host, port = line.split("http://")[1].split()[0].rsplit(":", 1)
            self.address = (host, int(port.strip("/")))
            for stream in (self.process.stdout, self.process.stderr):
                threading.Thread(target=stream.read, daemon=True).start()

    def trouble(self):
        """Why it did not start; empty when it did."""
        if self.address:
            return ""
        self.kill()
        return self.process.stderr.read()[-600:] or "it said nothing"

    def call(self, method, path, body=None, headers=None):
        """Status and JSON of an answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=CALL_LIMIT)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, dict({"Content-Type": "application/json"}, **(headers or {})))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data or b"null")

    def get(self, path):
        status, body = self.call("GET", path)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {body}")
        return body

    def kill(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_daemon(svc, project, home):
    """The daemon of a project; agents of an earlier one are not started again."""
    environment = dict(os.environ, XDG_CONFIG_HOME=home, HOME=home)
    return Program([svc, "start", "--port", "0", "--project", project], environment)


def start_market(market, folder):
    environment = dict(os.environ, SKILLS_API_KEY=KEY, SKILLS_PUBLIC_RPM="0", HOME=folder)
    return Program(
        [market, "serve", "--addr", "127.0.0.1:0", "--no-seed", "--db", f"{folder}/skills.db"], environment
    )


class Ledger:
    """What was acknowledged, in order. Each thing has one writer, so its values follow one another."""

    def __init__(self, mark):
        self.mark, self.lock, self.number = mark, threading.Lock(), 0
        self.values = {}

    def intend(self, kind, name, value):
        """From now on the thing may have this value."""
        self.values.setdefault((kind, name), []).append([value, None])

    def done(self, kind, name):
        """What was intended last was acknowledged: the log says so from here on."""
        with self.lock:
            self.number += 1
            self.values[kind, name][-1][1] = self.number
            self.mark(self.number)

    def allowed(self, marked):
        """What each thing may be with so many acknowledged: its last acknowledged value, or one that was
        under way.
        """
        for (kind, name), history in self.values.items():
            known, later = [None], []
            for value, number in history:
                if number is not None and number <= marked:
                    known, later = [value], []
                else:
                    later.append(value)
            # One value is under way at a time: those behind it had not been asked for.
            yield kind, name, known + later[:1]


class Work(threading.Thread):
    """One writer with things of its own, until the time is over."""

    def __init__(self, number, daemon, market, ledger, until):
        super().__init__()
        self.number, self.daemon_, self.market, self.ledger, self.until = (
            number,
            daemon,
            market,
            ledger,
            until,
        )
        self.refused = []

    def ask(self, kind, name, value, method, path, body=None, market=False):
        """Asks for it, and keeps the acknowledgement."""
        self.ledger.intend(kind, name, value)
        program = self.market if market else self.daemon_
        headers = {"Authorization": f"Bearer {KEY}"} if market else None
        status, answer = program.call(method, path, body, headers)
        if status not in (200, 201, 202):
            self.refused.append(f"{method} {path}: {status} {answer}")
            self.ledger.values[kind, name].pop()
            return {}
        self.ledger.done(kind, name)
        return answer

    def run(self):
        turn = 0
        rounds = [
            self.schedule,
            self.memory,
            self.agent,
            self.team,
            self.file,
            self.credential,
            self.skill,
            self.lock,
        ]
        while time.monotonic() < self.until:
            turn += 1
            rounds[(turn + self.number) % len(rounds)](f"{self.number}-{turn}")

    def schedule(self, name):
        name = f"plan-{name}"
        body = {
            "name": name,
            "cron": "0 5 * * *",
            "enabled": False,
            "agent": {"role": "qa", "provider": "script", "model": "hang", "prompt": "p"},
        }
        made = self.ask("schedule", name, "0 5 * * *", "POST", "/api/schedules", body)
        if made:
            self.ask(
                "schedule", name, "0 6 * * *", "PATCH", f"/api/schedules/{made['id']}", {"cron": "0 6 * * *"}
            )
            if len(name) % 2 or self.number % 2:
                self.ask("schedule", name, None, "DELETE", f"/api/schedules/{made['id']}")

    def memory(self, name):
        text = f"keep {name} in mind"
        made = self.ask("constraint", text, True, "POST", "/api/memory/constraints", {"text": text})
        if made and self.number % 2:
            self.ask("constraint", text, None, "DELETE", f"/api/memory/constraints/{made['hash']}")
        self.ask(
            "discovery",
            f"error {name}",
            True,
            "POST",
            "/api/memory/discoveries",
            {"trigger": f"error {name}", "fix": f"do {name}", "role": "dev", "outcome": "success"},
        )

    def agent(self, name):
        name = f"agent-{name}"
        made = self.ask(
            "agent",
            name,
            "there",
            "POST",
            "/api/agents",
            {"role": "dev", "name": name, "provider": "script", "model": "hang", "prompt": f"task of {name}"},
        )
        if not made:
            return
        self.ask(
            "instruction",
            f"{made['id']} {name}",
            True,
            "POST",
            f"/api/agents/{made['id']}/instruct",
            {"message": f"say {name}", "deliver": "rotation"},
        )
        if sum(kind == "approval" for kind, _ in list(self.ledger.values)) < APPROVALS:
            self.approval(name, made["id"])
        # Its instructions go with it.
        self.ledger.intend("instruction", f"{made['id']} {name}", None)
        self.ask("agent", name, "killed", "DELETE", f"/api/agents/{made['id']}")

    def approval(self, name, agent):
        asked = self.ask(
            "approval", name, "asked", "POST", "/api/questions", {"agentId": agent, "question": name}
        )
        if asked:
            path = f"/api/approvals/{asked['approvalId']}/approve"
            self.ask("approval", name, "approved", "POST", path, {"reason": "r"})

    def team(self, name):
        name = f"team-{name}"
        self.ask("team", name, True, "POST", "/api/teams", {"name": name})
        if self.number % 2:
            self.ask("team", name, None, "DELETE", f"/api/teams/{name}")

    def file(self, name):
        path = f"notes/{name}.txt"
        first, second = f"first {name}\n" * 50, f"second {name}\n" * 90
        self.ask(
            "file",
            path,
            first,
            "POST",
            "/api/files/create",
            {"path": path, "content": first, "parents": True},
        )
        self.ask("file", path, second, "POST", "/api/files/write", {"path": path, "content": second})

    def credential(self, name):
        name = f"p{name}"
        self.ask(
            "credential",
            name,
            True,
            "POST",
            "/api/credentials",
            {"provider": name, "key": f"key-of-{name}-0123456"},
        )
        if self.number % 2:
            self.ask("credential", name, None, "DELETE", f"/api/credentials/{name}")

    def skill(self, name):
        body = {"name": f"Skill {name}", "description": "Made for a test.", "category": "quality"}
        self.ledger.intend("skill", name, True)
        status, made = self.market.call("POST", "/api/v1/skills", body, {"Authorization": f"Bearer {KEY}"})
        if status in (200, 201):
            # Its id is the market's to choose, so it is looked for by that.
            self.ledger.values["skill", made["id"]] = self.ledger.values.pop(("skill", name))
            self.ledger.done("skill", made["id"])
        else:
            self.ledger.values.pop(("skill", name))
            self.refused.append(f"a skill: {status} {made}")

    def lock(self, name):
        status, agents = self.daemon_.call("GET", "/api/agents")
        live = [agent["id"] for agent in agents if agent["status"] == "active" and agent["name"] == "holder"]
        if live:
            thing = f"thing-{name}"
            self.ask(
                "lock",
                thing,
                True,
                "POST",
                "/api/coordination/declare",
                {"agentId": live[0], "operation": "build", "resources": [thing], "ttlMs": 3600000},
            )


def found_locks(state):
    """Which things are locked by what stands on disk: the log written ahead of the locks, or their own
    file.
    """
    try:
        with open(f"{state}/state/ahead.jsonl", "rb") as file:
            lines = [line for line in file.read().split(b"\n")[:-1]]
    except FileNotFoundError:
        lines = []
    content = json.loads(lines[-1])["content"] if lines else None
    if content is None:
        try:
            with open(f"{state}/state/locks.json", "rb") as file:
                content = json.load(file)
        except FileNotFoundError:
            content = {}
    return json.dumps(content)


def found(daemon, market, project, locks):
    """A function that tells what a thing is now."""
    schedules = daemon.get("/api/schedules")
    schedules = schedules if isinstance(schedules, list) else schedules["schedules"]
    crons = {one["name"]: one["cron"] for one in schedules}
    constraints = {one["text"] for one in daemon.get("/api/memory/constraints")["constraints"]}
    discoveries = {one["trigger"] for one in daemon.get("/api/memory/discoveries?limit=500")["discoveries"]}
    agents = {one["name"]: one for one in daemon.get("/api/agents")}
    approvals = daemon.get("/api/approvals")
    decided = {one["action"].get("question"): one["status"] for one in approvals["resolved"]}
    decided.update({one["action"].get("question"): "asked" for one in approvals["pending"]})
    teams = {one["name"] for one in listed(daemon.get("/api/teams"), "teams")}
    credentials = json.dumps(daemon.get("/api/credentials"))

    def of_agent(name):
        if name not in agents:
            return None
        return "killed" if agents[name]["state"] == "killed" else "there"

    def of_instruction(words):
        status, agent = daemon.call("GET", f"/api/agents/{words.split()[0]}")
        said = [one["text"] for one in agent.get("instructions", [])] if status == 200 else []
        return True if f"say {words.split()[1]}" in said else None

    def of_file(path):
        try:
            with open(f"{project}/{path}") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def of_skill(name):
        return True if market.call("GET", f"/api/v1/skills/{name}")[0] == 200 else None

    return {
        "schedule": crons.get,
        "agent": of_agent,
        "instruction": of_instruction,
        "approval": decided.get,
        "file": of_file,
        "skill": of_skill,
        "constraint": lambda text: True if text in constraints else None,
        "discovery": lambda text: True if text in discoveries else None,
        "team": lambda name: True if name in teams else None,
        "credential": lambda name: True if f'"{name}"' in credentials else None,
        "lock": lambda name: True if f'"{name}"' in locks else None,
    }


def goes_on(daemon, market):
    """Both take a change as before."""
    asked = [
        (daemon, "/api/memory/constraints", {"text": "what is said after a cut is kept"}, None),
        (
            market,
            "/api/v1/skills",
            {"name": "After", "description": "Made for a test.", "category": "quality"},
            {"Authorization": f"Bearer {KEY}"},
        ),
    ]
    answers = [(path, *program.call("POST", path, body, headers)) for program, path, body, headers in asked]
    return [
        f"POST {path} is refused after the cut: {status} {body}"
        for path, status, body in answers
        if status >= 300
    ]


def listed(answer, name):
    return answer if isinstance(answer, list) else answer.get(name, [])
