"""What an agent's process may try at the sockets of the door: knock.py RESULT FOLDER OWN DOOR.

Gives a connection to the daemon that listens at FOLDER/OWN, and asks for the door's own socket at
FOLDER/DOOR. Writes what came of both to RESULT: the name of an error, "ended", or what was answered.
"""

import array
import os
import socket
import sys

result, folder, own, door = sys.argv[1:]


def knock(name, word):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(10)
    given = array.array("i", [stream.fileno()])
    try:
        stream.connect(os.path.join(folder, name))
        stream.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)] if word == b"c" else [])
        return stream.recv(1).decode() or "ended"
    except (FileNotFoundError, PermissionError) as error:
        return type(error).__name__
    except (BrokenPipeError, ConnectionResetError):
        return "ended"


told = f"{knock(own, b'c')} {knock(door, b'y')}"
with open(result + ".new", "w") as file:
    file.write(told)
os.rename(result + ".new", result)
