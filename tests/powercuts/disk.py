"""A disk whose writes are kept in order, and what a power cut could have left of it.

The disk is a file that qemu's storage daemon exports over FUSE, behind its blklogwrites driver; a loop device
with ext4 stands on it. The log has the format of Linux' dm-log-writes. Behind the file system lie sectors for
marks: a program that was told "it is done" writes one there, so that the log itself says what had been
acknowledged when.
"""

import os, random, struct, subprocess, tempfile, time

SECTOR = 512
# The file system, and behind it one sector for marks.
FS_BYTES = 48 << 20
MARK_AT = FS_BYTES
DISK_BYTES = FS_BYTES + (1 << 20)
# Room for the log. It is sparse; a run that writes more fails with an error of the disk.
LOG_BYTES = 16 << 30
MAGIC, FLUSH, FUA, DISCARD = 0x6A736677736872, 1, 2, 4
MARK = b"svc-mark"
# Writes that a lying disk keeps back.
LIED_ABOUT = 60
# Seconds that the export may take to appear.
EXPORT_LIMIT = 20


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def unmount(point):
    """What was killed a moment ago may hold a file of it yet."""
    for _ in range(50):
        if subprocess.run(["umount", point], stderr=subprocess.DEVNULL).returncode == 0:
            break
        time.sleep(0.1)


class LoggedDisk:
    """The disk, its export, its loop device and its mount; all gone when closed."""

    def __init__(self, folder):
        self.folder, self.loop, self.mounted = folder, None, False
        self.log, self.point = f"{folder}/log", f"{folder}/mnt"
        os.mkdir(self.point)
        for name, size in (("disk", DISK_BYTES), ("log", LOG_BYTES), ("export", 0)):
            with open(f"{folder}/{name}", "wb") as file:
                file.truncate(size)
        self.server = subprocess.Popen(
            [
                "qemu-storage-daemon",
                "--blockdev",
                f"driver=file,node-name=disk,filename={folder}/disk,cache.no-flush=on",
                "--blockdev",
                f"driver=file,node-name=log,filename={folder}/log,cache.no-flush=on",
                "--blockdev",
                "driver=blklogwrites,node-name=both,file=disk,log=log,log-sector-size=512",
                "--export",
                f"type=fuse,id=e,node-name=both,mountpoint={folder}/export,writable=on",
            ]
        )
        limit = time.monotonic() + EXPORT_LIMIT
        while os.stat(f"{folder}/export").st_size != DISK_BYTES:
            if self.server.poll() is not None or time.monotonic() > limit:
                raise SystemExit(
                    "qemu-storage-daemon does not export the disk: is FUSE there, and are you root?"
                )
            time.sleep(0.05)
        try:
            run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", f"{folder}/export", str(FS_BYTES // 4096))
            self.loop = run("losetup", "--find", "--show", f"{folder}/export")
            run("mount", "-t", "ext4", self.loop, self.point)
            self.mounted = True
        except subprocess.CalledProcessError:
            self.close()
            raise
        self.marks = os.open(self.loop, os.O_WRONLY | os.O_DIRECT)

    def mark(self, number):
        """Writes a mark: what has been acknowledged up to `number` was so before anything that follows in the
        log.
        """
        # O_DIRECT wants memory that is aligned; a fresh mapping is.
        import mmap

        page = mmap.mmap(-1, 4096)
        page[:16] = MARK + struct.pack("<Q", number)
        os.pwrite(self.marks, memoryview(page)[:SECTOR], MARK_AT)

    def close(self):
        if getattr(self, "marks", None) is not None:
            os.close(self.marks)
            self.marks = None
        if self.mounted:
            unmount(self.point)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], check=False)
        if self.server.poll() is None:
            self.server.terminate()
            self.server.wait(timeout=30)


def entries(path):
    """The log's entries in order: (flags, offset, data). A discard has its length in place of data."""
    with open(path, "rb") as file:
        magic, version, count, sector = struct.unpack("<QQQI", file.read(28))
        if magic != MAGIC or version != 1:
            raise SystemExit(f"{path} is no log of writes")
        file.seek(sector)
        for _ in range(count):
            at, sectors, flags, _ = struct.unpack("<QQQQ", file.read(32))
            file.seek(sector - 32, 1)
            length = sectors * sector
            if flags & DISCARD:
                yield flags, at * sector, length
            else:
                yield flags, at * sector, file.read(length)


class Writes:
    """The log, read once: what was there when the work began, and every write and flush since."""

    def __init__(self, path):
        self.base = bytearray(FS_BYTES)
        self.steps = []
        began = False
        for flags, offset, data in entries(path):
            if offset == MARK_AT and not isinstance(data, int) and data[:8] == MARK:
                began = True
                self.steps.append(("mark", struct.unpack("<Q", data[8:16])[0], b""))
                continue
            if flags & DISCARD or offset >= FS_BYTES:
                # What a discarded sector holds is not defined; that it holds what it did is one of the
                # possibilities.
                continue
            if began:
                if data:
                    self.steps.append(("write", offset, data))
                if flags & (FLUSH | FUA):
                    self.steps.append(("flush", 0, b""))
            elif data:
                self.base[offset : offset + len(data)] = data

    def count(self, kind):
        return sum(step[0] == kind for step in self.steps)


class Cut:
    """One state: what it is, how many steps came before it, and what is acknowledged in it."""

    def __init__(self, kind, step, marked, lost):
        self.kind, self.step, self.marked, self.lost = kind, step, marked, lost

    def __str__(self):
        return f"{self.kind} after step {self.step}, {self.marked} acknowledged, {self.lost} writes lost"


def choose(writes, states, seed):
    """Which states are looked at: for each point one of four kinds, spread over the whole log by a seed.
    Sorted by step.

    `none`: nothing behind the last flush has arrived. `all`: everything has. `some`: any of it, in no order.
    `torn`: as `some`, and the last write only in part.
    """
    dice = random.Random(seed)
    points = [at for at, step in enumerate(writes.steps, 1) if step[0] != "mark"]
    chosen = set()
    while len(chosen) < min(states, 4 * len(points)):
        chosen.add((dice.choice(points), dice.choice(["none", "all", "some", "torn"])))
    return sorted(chosen)


def states(writes, chosen, seed, lying=False):
    """Gives each chosen state: the cut, and its image. A lying disk says that it has flushed and keeps the
    last writes back all the same.
    """
    base, pending, marked, chosen = bytearray(writes.base), [], 0, list(chosen)
    for at, (kind, where, data) in enumerate(writes.steps, 1):
        if kind == "mark":
            marked = where
        elif kind == "write":
            pending.append((where, data))
        else:
            through = pending[:-LIED_ABOUT] if lying else pending
            for where, data in through:
                base[where : where + len(data)] = data
            pending = pending[len(through) :]
        while chosen and chosen[0][0] == at:
            _, way = chosen.pop(0)
            yield cut_at(base, pending, at, way, marked, random.Random(f"{seed} {at} {way}"))


def cut_at(base, pending, at, way, marked, dice):
    if way == "none":
        kept = []
    elif way == "all":
        kept = list(pending)
    else:
        kept = [write for write in pending if dice.random() < 0.5]
    if way == "torn" and kept and len(kept[-1][1]) > SECTOR:
        where, data = kept[-1]
        kept[-1] = (where, data[: SECTOR * dice.randrange(1, len(data) // SECTOR)])
    image = bytearray(base)
    for where, data in kept:
        image[where : where + len(data)] = data
    return Cut(way, at, marked, len(pending) - len(kept)), image


class Mounted:
    """An image, mounted: ext4 replays its journal as it would after the cut. It stands in memory."""

    def __init__(self, folder, image):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.point = f"{self.folder}/mnt"
        os.mkdir(self.point)
        with open(f"{self.folder}/image", "wb") as file:
            file.truncate(DISK_BYTES)
            for at in range(0, len(image), 1 << 16):
                part = image[at : at + (1 << 16)]
                if part.count(0) != len(part):
                    file.seek(at)
                    file.write(part)

    def __enter__(self):
        run("mount", "-o", "loop", "-t", "ext4", f"{self.folder}/image", self.point)
        return self.point

    def __exit__(self, *_):
        unmount(self.point)
        os.unlink(f"{self.folder}/image")
        os.rmdir(self.point)
        os.rmdir(self.folder)
