"""What the daemon tells over WebSocket (RFC 6455), with the standard library alone."""

import base64
import hashlib
import json
import os
import socket
import ssl
import struct
import urllib.parse
from types import TracebackType
from typing import Iterator, Mapping, Optional, cast

from .types import ClientMessage, Message

#: Bytes of one message; a longer one closes the stream with 1009.
MAX_MESSAGE_BYTES = 64 << 20
#: Bytes of the head of the answer to the upgrade.
MAX_HEAD_BYTES = 64 << 10
#: Seconds for the connection and the upgrade.
CONNECT_SECONDS = 30.0

_CONTINUED, _TEXT, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x8, 0x9, 0xA
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Closed(Exception):
    """The stream is over: the daemon ended, or closed it, for what `code` (RFC 6455, 7.4.1) and `reason` say."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Stream:
    """Messages of the daemon, one after the other. A context manager, and an iterator that ends with the stream."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: Optional[float] = None) -> None:
        parts = urllib.parse.urlsplit(url)
        is_secret = parts.scheme in ("https", "wss")
        host, port = parts.hostname or "", parts.port or (443 if is_secret else 80)
        self._left = b""
        self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        try:
            if is_secret:
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=host)
            self._upgrade(parts, headers)
            self._socket.settimeout(timeout)
        except BaseException:
            self._socket.close()
            raise

    def _upgrade(self, parts: urllib.parse.SplitResult, headers: Mapping[str, str]) -> None:
        key = base64.b64encode(os.urandom(16))
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        lines = [f"GET {target} HTTP/1.1", f"Host: {parts.netloc}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            data = self._socket.recv(4096)
            if not data or len(head) > MAX_HEAD_BYTES:
                raise ConnectionError(f"the daemon did not upgrade the connection: {head[:200]!r}")
            head += data
        head, self._left = head.split(b"\r\n\r\n", 1)
        told = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        if not head.startswith(b"HTTP/1.1 101") or told.get(b"sec-websocket-accept") != accept.lower():
            raise ConnectionError(f"the daemon did not upgrade the connection: {head[:200]!r}")

    def receive(self) -> Message:
        """The next message. `Closed` at the end of the stream, `TimeoutError` when none has come in time."""
        text = b""
        while True:
            is_last, kind, data = self._frame()
            if kind == _PING:
                self._write(_PONG, data)
            elif kind == _CLOSE:
                code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else 1005
                self._write(_CLOSE, data[:2])
                self._socket.close()
                raise Closed(code, data[2:].decode(errors="replace"))
            elif kind in (_TEXT, _CONTINUED):
                text += data
                if len(text) > MAX_MESSAGE_BYTES:
                    self.close(1009)
                    raise Closed(1009, f"a message is above {MAX_MESSAGE_BYTES} bytes")
                if is_last:
                    return cast(Message, json.loads(text))

    def send(self, message: ClientMessage) -> None:
        """Says something: a ping, what is to be watched."""
        self._write(_TEXT, json.dumps(message).encode())

    def close(self, code: int = 1000) -> None:
        """Leaves; the daemon forgets what was watched."""
        try:
            self._write(_CLOSE, struct.pack("!H", code))
        except OSError:
            pass
        self._socket.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _frame(self) -> tuple[bool, int, bytes]:
        # A time-out between two parts of a frame loses nothing: what was read stays until the frame is whole.
        need = 2
        while True:
            self._fill(need)
            first, second = self._left[0], self._left[1]
            size, at = second & 0x7F, 2
            if size >= 126:
                at += 2 if size == 126 else 8
                if len(self._left) < at:
                    need = at
                    continue
                size = int.from_bytes(self._left[2:at], "big")
            if size > MAX_MESSAGE_BYTES:
                self.close(1009)
                raise Closed(1009, f"a message is above {MAX_MESSAGE_BYTES} bytes")
            if len(self._left) < at + size:
                need = at + size
                continue
            data, self._left = self._left[at : at + size], self._left[at + size :]
            return bool(first & 0x80), first & 0x0F, data

    def _fill(self, need: int) -> None:
        if len(self._left) >= need:
            return
        parts, count = [self._left], len(self._left)
        try:
            while count < need:
                data = self._socket.recv(max(4096, min(need - count, 1 << 20)))
                if not data:
                    raise Closed(1006, "the connection ended")
                parts.append(data)
                count += len(data)
        finally:
            self._left = b"".join(parts)

    def _write(self, kind: int, data: bytes) -> None:
        mask = os.urandom(4)
        size = len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack("!H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", size)
        self._socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))
