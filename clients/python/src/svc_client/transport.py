"""How a request goes out and an answer comes back."""

import json
import pathlib
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping, Optional, Sequence, Union

from .stream import Stream
from .types import Problem

#: What stands in a query; None is left out.
Query = Union[str, int, bool, None]

#: Seconds that a call may take where nothing else is said: a question to an agent takes up to 60.
TIMEOUT_SECONDS = 90.0

#: The port of a daemon that was told none.
USUAL_URL = "http://127.0.0.1:31415"


class Refused(Exception):
    """The daemon does not do it: `problem` says why, for programs by its `code`."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.get("error") or f"status {status}")
        self.status = status
        self.problem = problem

    @property
    def code(self) -> str:
        """A stable word."""
        return self.problem.get("code", "")


def segment(value: str) -> str:
    """A part of a path."""
    return urllib.parse.quote(value, safe="")


class Transport:
    """Where the daemon is and who calls it."""

    def __init__(self, url: str = USUAL_URL, token: Optional[str] = None, timeout: float = TIMEOUT_SECONDS) -> None:
        """`token` is what is in `.svc/token`, or an agent's; a program of a person on the same machine needs none."""
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout
        # The daemon is near: a proxy for the world outside is not asked.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @staticmethod
    def token_of(folder: Union[str, pathlib.Path] = ".") -> str:
        """The person's token of the project in `folder`; each start of its daemon makes another."""
        return (pathlib.Path(folder) / ".svc" / "token").read_text().strip()

    def call(self, method: str, path: str, query: Mapping[str, Query], body: Any, wanted: str) -> Any:
        """Sends one request. `Refused` for 400 and above, `OSError` when there is no answer.

        `wanted` is "data" for bytes; else JSON is read, text comes as it is, and nothing as None.
        """
        asked = {name: _word(value) for name, value in query.items() if value is not None}
        url = self.url + path + ("?" + urllib.parse.urlencode(asked) if asked else "")
        request = urllib.request.Request(url, method=method, headers=self._headers())
        if method not in ("GET", "DELETE"):
            request.data = json.dumps({} if body is None else body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                data: bytes = answer.read()
                media = answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, _problem(error.code, error.read())) from None
        if wanted == "data":
            return data
        if not data:
            return None
        return json.loads(data) if media == "application/json" else data.decode()

    def stream(
        self, types: Sequence[str] = (), since: Optional[int] = None, delta: bool = False, timeout: Optional[float] = None
    ) -> Stream:
        """What the daemon tells, from now on, or after the message with the number `since`.

        `types` are those to be told of, all where it is empty; `delta` asks for changes instead of further whole
        states. `timeout` is in seconds, for one message: `TimeoutError` when none has come.
        """
        asked = {"types": ",".join(types), "since": _word(since) if since is not None else "", "delta": "1" if delta else ""}
        query = urllib.parse.urlencode({name: value for name, value in asked.items() if value})
        return Stream(self.url + "/ws" + ("?" + query if query else ""), self._headers(), timeout)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def _word(value: Query) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _problem(status: int, data: bytes) -> Problem:
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if isinstance(told, dict) and "error" in told:
        problem: Problem = told  # type: ignore[assignment]
        return problem
    text = data.decode(errors="replace")
    return {"error": text, "code": "", "status": status, "title": "", "detail": text}
