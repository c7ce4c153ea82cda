"""A typed client of the svc daemon: every route as a method, and what it tells over WebSocket. Standard library only."""

from . import types
from .client import Client
from .stream import Closed, Stream
from .transport import Refused

__all__ = ["Client", "Closed", "Refused", "Stream", "types"]
