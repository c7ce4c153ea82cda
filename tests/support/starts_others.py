"""Calls a daemon from many programs, each of which starts others meanwhile; prints what was refused.

Usage: starts_others.py PORT PROGRAM COUNT: PROGRAM is run with the word `start`.
"""

import http.client, os, subprocess, sys, threading

# Threads of one caller that start programs without a pause: at each moment some hold what is the caller's.
OTHERS = 8

port, program, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def start_others(is_over):
    while not is_over.is_set():
        subprocess.run([program, "start"], check=True)


def call():
    """One call, from a program that the daemon has not seen before."""
    is_over = threading.Event()
    for _ in range(OTHERS):
        threading.Thread(target=start_others, args=[is_over], daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/api/credentials")
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        print(answer.status, text.decode(), flush=True)
    is_over.set()


for _ in range(count):
    child = os.fork()
    if child == 0:
        call()
        os._exit(0)
    os.waitpid(child, 0)
