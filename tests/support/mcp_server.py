#!/usr/bin/env python3
"""A Model Context Protocol server over stdio for the tests of the integrations bridge. Standard library only.

  mcp_server.py [--silent] [--version V] [--paging N] [--noise] [--stubborn] [--exit CODE] [--count FILE]

--silent     never answers initialize
--version V  answers initialize with protocol version V
--paging N   lists N tools a page
--noise      prints lines that are no messages before everything it says
--stubborn   ends neither on a closed standard input nor on TERM
--exit CODE  ends at once
--count FILE appends a line to FILE at each start
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

options = sys.argv[1:]


def option(name, default=None):
    return options[options.index(name) + 1] if name in options else default


lock = threading.Lock()
tools = ["echo", "slow", "crash", "grow", "ask_client", "environment", "fail", "refuse", "seen", "big",
         "stray", "pid", "send"]
notifications = []
answers = {}
answered = threading.Condition()


def send(message):
    message["jsonrpc"] = "2.0"
    with lock:
        if "--noise" in options:
            sys.stdout.write("npm warn something\n\n{broken json\n[]\n\"text\"\n17\nnull\n")
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def ask_client(call_id, method):
    """Asks the client under the very id of the call that is in flight, and gives what it answers."""
    send({"id": call_id, "method": method, "params": {}})
    with answered:
        answered.wait_for(lambda: call_id in answers, timeout=20)
        return answers.pop(call_id, None)


def run_tool(call_id, name, arguments):
    if name == "echo":
        return {"result": text(arguments.get("text", ""), structuredContent=arguments)}
    if name == "slow":
        time.sleep(arguments["seconds"])
        return {"result": text("late")}
    if name == "crash":
        print("about to crash with a token " + os.environ.get("TEST_TOKEN", "-"), file=sys.stderr, flush=True)
        os._exit(arguments.get("code", 1))
    if name == "grow":
        tools.append("grown")
        send({"method": "notifications/tools/list_changed"})
        return {"result": text("grown")}
    if name == "ask_client":
        return {"result": text(json.dumps(ask_client(call_id, arguments["method"])))}
    if name == "environment":
        return {"result": text(json.dumps(dict(os.environ)))}
    if name == "fail":
        return {"result": text("it did not work", isError=True)}
    if name == "refuse":
        return {"error": {"code": -32000, "message": "no " + os.environ.get("TEST_TOKEN", "-")}}
    if name == "seen":
        return {"result": text(json.dumps(notifications))}
    if name == "big":
        return {"result": text("x" * arguments["bytes"])}
    if name == "stray":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return {"result": text(str(child.pid))}
    if name == "pid":
        return {"result": text(str(os.getpid()))}
    if name == "send":
        with open(arguments["file"], "a") as file:
            file.write("sent\n")
        return {"result": text("sent")}
    return {"error": {"code": -32602, "message": "unknown tool " + name}}


def list_tools(params):
    size = int(option("--paging", "1000"))
    start = int(params.get("cursor", "0"))
    page = [{"name": name, "description": "does " + name, "inputSchema": {"type": "object", "properties": {}}}
            for name in tools[start:start + size]]
    result = {"tools": page}
    if start + size < len(tools):
        result["nextCursor"] = str(start + size)
    return result


def handle(message):
    method, call_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        with answered:
            answers[call_id] = message
            answered.notify_all()
    elif call_id is None:
        notifications.append(message)
    elif method == "initialize":
        if "--silent" not in options:
            version = option("--version", params["protocolVersion"])
            send({"id": call_id, "result": {
                "protocolVersion": version, "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "test-server", "version": "1"}}})
    elif method == "tools/list":
        send({"id": call_id, "result": list_tools(params)})
    elif method == "tools/call":
        outcome = run_tool(call_id, params["name"], params.get("arguments") or {})
        send({"id": call_id, **outcome})
    else:
        send({"id": call_id, "error": {"code": -32601, "message": "Method not found"}})


def main():
    if option("--count"):
        with open(option("--count"), "a") as file:
            file.write("start\n")
    if option("--exit"):
        print("refusing to start", file=sys.stderr, flush=True)
        sys.exit(int(option("--exit")))
    if "--stubborn" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
    while "--stubborn" in options:
        time.sleep(60)


main()
