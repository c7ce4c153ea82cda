"""Drives a running daemon, whose address is the first word and a file of whose project the second."""

import sys

from svc_client import Client, Refused
from svc_client.types import AgentExitMessage, LogEntry, Message


def words_of(entries: list[LogEntry]) -> list[str]:
    return [entry["text"] for entry in entries if entry["type"] == "text"]


def ended(message: Message, agent: str) -> AgentExitMessage | None:
    if message["type"] == "agent:exit" and message["agentId"] == agent:
        return message
    return None


def main() -> None:
    svc, file = Client(sys.argv[1]), sys.argv[2]
    assert svc.get_health()["status"] == "ok"

    with svc.stream(timeout=60) as stream:
        first = stream.receive()
        assert first["type"] == "state" and first["data"] == [], first
        made = svc.post_agents({"role": "tester", "provider": "script", "model": "quick", "prompt": "rehearse"})
        assert made["state"] in ("starting", "running", "completed"), made
        seen, exit_of = first["seq"], None
        for message in stream:
            if message["type"] == "agent:output":
                assert message["agentId"] == made["id"]
            if exit_of := ended(message, made["id"]):
                break
        assert exit_of and exit_of["status"] == "completed" and exit_of["code"] == 0, exit_of
        stream.send({"type": "watch", "path": file})
        stream.send({"type": "ping"})
        answers: list[str] = []
        while len(answers) < 2:
            message = stream.receive()
            if message["type"] in ("watching", "pong"):
                answers.append(message["type"])
        assert answers == ["watching", "pong"], answers
    with svc.stream(types=["agent:exit"], since=seen, timeout=60) as again:
        assert ended(again.receive(), made["id"]), "what was missed is told again"

    agent = svc.get_agents_id(made["id"])
    assert agent["statusCode"] == exit_of["statusCode"] and agent["instructions"] == []
    page = svc.get_agents_id_log(made["id"], since=0)
    assert words_of(page["entries"]), page
    assert svc.get_agents_id_routing_suggestion(made["id"]) is None
    assert "svc_agents" in svc.get_metrics()
    text = "é" * 70_000
    written = svc.post_files_write({"path": file, "content": text})
    assert written["size"] == 140_000
    raw = svc.get_files_raw(path=file)
    assert raw == text.encode(), len(raw)

    try:
        svc.get_agents_id("no such/agent?")
    except Refused as refused:
        assert (refused.status, refused.code) == (404, "not_found"), refused
    else:
        raise AssertionError("an agent that is not there was found")
    removed = svc.delete_agents_id(made["id"])
    assert removed.get("removed") is True
    print("all is well")


main()
