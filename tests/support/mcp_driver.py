#!/usr/bin/env python3
"""The client under test for the public conformance suite of the Model Context Protocol: the daemon, reached over HTTP.

  mcp_driver.py DAEMON_URL MCP_REMOTE SERVER_URL

Adds the suite's server as an integration (through the bridge mcp-remote), lists its tools, calls each of them once with
plausible arguments, and removes the integration. The suite judges by what its server has seen.
"""
import json
import os
import sys
import urllib.request

daemon, remote, server = sys.argv[1:4]


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(daemon + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def plausible(schema):
    values = {"number": 5, "integer": 5, "boolean": True, "string": "x", "array": [], "object": {}}
    return {name: values.get(kind.get("type"), "x") for name, kind in schema.get("properties", {}).items()}


name = "conformance-%d" % os.getpid()
args = [server, "--allow-http", "--transport", "http-only"]
ask("POST", "/api/integrations", {"id": name, "command": remote, "args": args})
for tool in ask("GET", "/api/integrations/%s/tools" % name)["tools"]:
    body = {"tool": tool["name"], "params": plausible(tool["inputSchema"])}
    print(tool["name"], ask("POST", "/api/integrations/%s/exec" % name, body), file=sys.stderr)
ask("DELETE", "/api/integrations/" + name)
