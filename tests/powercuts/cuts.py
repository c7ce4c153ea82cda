#!/usr/bin/env python3
"""Power cuts on a real file system: the daemon and the marketplace work on ext4 whose every write is logged,
the log is cut at many places, and both are started on what such a cut could have left.

sudo tests/powercuts/cuts.py --svc target/release/svc --market target/release/svc-skills --states 2000

What was acknowledged before the cut has to be there, nothing may be half, and both have to start. Needs root,
loop devices, FUSE, mke2fs and qemu-storage-daemon (Debian: e2fsprogs, qemu-utils or qemu-system-common).
Python 3, standard library.
"""

import argparse, collections, concurrent.futures, glob, os, shutil, sys, tempfile, threading, time

import disk, promises

# States that are looked at side by side: each waits for its own disk most of the time.
AT_ONCE = 3
# The exit status where they cannot be tried.
CANNOT = 3
# Fresh work is logged for so many states.
STATES_OF_A_ROUND = 500


def work(options, place):
    """Both programs at work on the logged disk. Gives the ledger, and the log of writes."""
    logged = disk.LoggedDisk(place)
    try:
        project, home = f"{logged.point}/project", f"{place}/home"
        os.makedirs(f"{project}/.svc/rehearsals")
        os.makedirs(home)
        with open(f"{project}/.svc/config.json", "w") as file:
            file.write('{"maxAgents": 40, "keeper": {"orphanMinutes": 0}}')
        os.sync()
        daemon = promises.start_daemon(options.svc, project, home)
        market = promises.start_market(options.market, logged.point)
        for program in (daemon, market):
            if program.trouble():
                raise SystemExit(f"a program does not start: {program.trouble()}")
        daemon.call(
            "POST",
            "/api/agents",
            {"role": "dev", "name": "holder", "provider": "script", "model": "hang", "prompt": "hold"},
        )
        logged.mark(0)
        ledger = promises.Ledger(logged.mark)
        until = time.monotonic() + options.seconds
        writers = [promises.Work(number, daemon, market, ledger, until) for number in range(options.writers)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        daemon.call("POST", "/api/shutdown", {})
        daemon.process.wait(timeout=120)
        market.kill()
    finally:
        logged.close()
    refused = [line for writer in writers for line in writer.refused]
    return ledger, logged.log, refused


def look(options, place, cut, image, ledger):
    """What is wrong with one state; an empty list is as it should be."""
    try:
        with disk.Mounted(place, image) as point:
            return look_at(options, place, point, cut, ledger)
    except Exception as error:  # whatever it is, this state is not as it should be
        return [f"{type(error).__name__}: {error}"]


def look_at(options, place, point, cut, ledger):
    project, started = f"{point}/project", []
    try:
        locks = promises.found_locks(f"{project}/.svc")
        started.append(promises.start_daemon(options.svc, project, f"{place}/home"))
        started.append(promises.start_market(options.market, point))
        for name, program in zip(("svc", "svc-skills"), started):
            if program.trouble():
                return [f"{name} does not start: {program.trouble()}"]
        now, wrong = promises.found(*started, project, locks), []
        for kind, name, allowed in ledger.allowed(cut.marked):
            there = now[kind](name)
            if there not in allowed:
                wrong.append(f"{kind} {name!r} is {short(there)}, and may be {short(allowed)}")
        aside = glob.glob(f"{project}/.svc/**/*corrupt*", recursive=True)
        return wrong + [f"{path} was set aside" for path in aside] + promises.goes_on(*started)
    finally:
        for program in started:
            program.kill()


def short(value):
    text = repr(value)
    return text if len(text) < 80 else text[:60] + f".. ({len(text)})"


def main():
    parser = argparse.ArgumentParser(description="power cuts on a real file system")
    parser.add_argument("--svc", default="target/release/svc")
    parser.add_argument("--market", default="target/release/svc-skills")
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=12, help="of work that is logged")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--lying", action="store_true", help="a disk that flushes nothing: something must be found"
    )
    options = parser.parse_args()
    options.svc, options.market = os.path.abspath(options.svc), os.path.abspath(options.market)
    missing = [name for name in ("qemu-storage-daemon", "mke2fs", "losetup") if not shutil.which(name)]
    if os.getuid() != 0 or missing or not os.path.exists("/dev/fuse"):
        print(f"power cuts need root, /dev/fuse and {', '.join(missing) or 'their programs'}")
        sys.exit(CANNOT)
    left, broken, looked, seed = options.states, 0, 0, options.seed
    while left > 0:
        states, worse = one_round(options, min(left, STATES_OF_A_ROUND), seed)
        left, looked, broken, seed = left - STATES_OF_A_ROUND, looked + states, broken + worse, seed + 1
    print(f"in all {looked} states, {broken} broken")
    sys.exit(1 if broken else 0)


def one_round(options, states, seed):
    """Fresh work, and so many states of it. Gives how many were looked at, and how many of them were
    broken.
    """
    # The states stand in memory; the log, which is long, does not.
    with tempfile.TemporaryDirectory(prefix="svc-cuts-") as place, tempfile.TemporaryDirectory(
        prefix="svc-cuts-", dir="/dev/shm"
    ) as memory:
        os.makedirs(f"{memory}/home")
        ledger, log, refused = work(options, place)
        writes = disk.Writes(log)
        kinds = collections.Counter(kind for kind, _ in ledger.values)
        print(
            f"seed {seed}: {ledger.number} changes of {len(kinds)} kinds acknowledged in "
            f"{options.seconds:g} s; logged: "
            f"{writes.count('write')} writes, {writes.count('flush')} flushes; {len(refused)} calls refused",
            flush=True,
        )
        for line in refused[:5]:
            print(f"refused: {line[:200]}")
        return search(options, memory, ledger, writes, states, seed)


def search(options, memory, ledger, writes, states, seed):
    """Looks at so many states: how many there were, and how many are not as they should be."""
    began = time.monotonic()
    chosen = disk.choose(writes, states, seed)
    slots, broken, count = threading.Semaphore(AT_ONCE + 1), [], collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:

        def ended(cut, future):
            slots.release()
            count[cut.kind] += 1
            if future.result():
                broken.append((cut, future.result()))
                print(f"BROKEN {cut}: {future.result()[:4]}", flush=True)

        for cut, image in disk.states(writes, chosen, seed, options.lying):
            slots.acquire()
            future = pool.submit(look, options, memory, cut, image, ledger)
            future.add_done_callback(lambda done, cut=cut: ended(cut, done))
    print(
        f"{sum(count.values())} states ({', '.join(f'{kind} {n}' for kind, n in sorted(count.items()))}), "
        f"{len(broken)} broken, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return sum(count.values()), len(broken)


if __name__ == "__main__":
    main()
