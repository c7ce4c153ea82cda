#!/usr/bin/env python3
"""The table and the picture of a soak: tests/soak/report.py target/soak makes them again from
samples.json.
"""

import json, os, sys

# What is held against a bound: the key, its name, its divisor, its unit, and how much it may grow in an hour
# of undisturbed life, in that unit. A bound is what would be seen within a day: 1 MB an hour is 24 MB a day.
FIGURES = [
    ("pss", "memory of the daemon (PSS)", 1024, "MB", 1.0),
    ("private", "memory of its own (dirty)", 1024, "MB", 1.0),
    ("rss", "memory in sight (RSS)", 1024, "MB", 1.5),
    ("descriptors", "descriptors", 1, "", 2.0),
    ("threads", "threads", 1, "", 2.0),
    ("keepers", "keepers alive", 1, "", 2.0),
    ("files", "files in .svc", 1, "", 60.0),
    ("disk", "bytes in .svc", 1 << 20, "MB", 8.0),
    ("p50", "answers, median", 1, "ms", 5.0),
    ("p99", "answers, 99th percentile", 1, "ms", 100.0),
]
# Standard errors that a slope has to be from nothing before it is called one.
SURE = 3.0
# Neighbouring samples are alike, so a fit to all of them would be too sure of itself: means of so many.
BLOCKS = 12


def fit(points):
    """Slope per hour and its standard error, from the means of blocks of (seconds, value)."""
    size = max(1, len(points) // BLOCKS)
    blocks = [points[at : at + size] for at in range(0, len(points) - size + 1, size)]
    xs = [sum(x for x, _ in block) / len(block) / 3600 for block in blocks]
    ys = [sum(y for _, y in block) / len(block) for block in blocks]
    count = len(xs)
    if count < 3:
        return 0.0, float("inf")
    middle, level = sum(xs) / count, sum(ys) / count
    spread = sum((x - middle) ** 2 for x in xs)
    slope = sum((x - middle) * (y - level) for x, y in zip(xs, ys)) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in zip(xs, ys))
    return slope, (rest / (count - 2) / spread) ** 0.5


def judge(slope, error, bound):
    """One word for a slope: flat is within the bound; what is above it, and surely, grows."""
    if slope <= bound:
        return "flat"
    return "GROWS" if slope - SURE * error > bound else "unsure"


def rows(found):
    length = found["minutes"] * 60
    late = [sample for sample in found["samples"] if sample["at"] >= length / 2]
    table = []
    for key, name, divisor, unit, bound in FIGURES:
        points = [(sample["at"], sample[key] / divisor) for sample in late if key in sample]
        if not points:
            continue
        values = sorted(value for _, value in points)
        slope, error = fit(points)
        table.append(
            {
                "name": name,
                "unit": unit,
                "first": points[0][1],
                "median": values[len(values) // 2],
                "worst": values[-1],
                "slope": slope,
                "error": error,
                "bound": bound,
                "verdict": judge(slope, error, bound),
            }
        )
    return table


def growth(found):
    """Which entries of .svc have grown most in the last half, in bytes an hour."""
    late = [sample for sample in found["samples"] if sample["at"] >= found["minutes"] * 30]
    names = {name for sample in late for name in sample["places"]}
    slopes = [
        (fit([(sample["at"], sample["places"].get(name, 0)) for sample in late])[0], name) for name in names
    ]
    return [(name, slope) for slope, name in sorted(slopes, reverse=True) if slope > 10_000][:6]


def text(found):
    """The table as Markdown, and what went wrong."""
    lines = [
        "| What | at half time | median | most | growth an hour | bound | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows(found):
        unit = " " + row["unit"] if row["unit"] else ""
        lines.append(
            f"| {row['name']} | {row['first']:.1f}{unit} | {row['median']:.1f}{unit} "
            f"| {row['worst']:.1f}{unit} "
            f"| {row['slope']:+.2f} ± {row['error']:.2f}{unit} | {row['bound']:g}{unit} | {row['verdict']} |"
        )
    calls, failures = sum(found["calls"].values()), sum(found["failures"].values())
    last = [sample for sample in found["samples"] if "agents" in sample][-1]
    starts = ", ".join(f"{restart['seconds']} s" for restart in found["restarts"])
    lines += [
        "",
        f"{found['minutes']:g} minutes, {calls} calls of {len(found['calls'])} kinds, {failures} failed; "
        f"{last['agents']:.0f} agents on record at the end, {last['live']:.0f} alive; "
        f"panics: {max(sample.get('panics', 0) for sample in found['samples']):.0f}; "
        f"{found['heard'] // 1024} KiB heard by WebSocket clients.",
        f"Restarts, from the start to the first answer: {starts}.",
    ]
    lines += [f"Grows in .svc: {name} by {slope / 1024:.0f} KiB an hour." for name, slope in growth(found)]
    lines += [f"FAILED {count} times: {what}" for what, count in sorted(found["failures"].items())]
    return "\n".join(lines) + "\n"


def panel(found, top, key, name, divisor, unit):
    """One curve: time to the right, the figure upwards from nothing, restarts as lines."""
    width, height, left = 640, 70, 150
    points = [(sample["at"], sample[key] / divisor) for sample in found["samples"] if key in sample]
    length, most = found["minutes"] * 60, max((value for _, value in points), default=1) or 1
    place = lambda x, y: (left + x / length * width, top + height - y / most * height)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    out = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="#f6f6f4"/>']
    out += [
        f'<line x1="{place(cut["at"], 0)[0]:.1f}" x2="{place(cut["at"], 0)[0]:.1f}" y1="{top}" '
        f'y2="{top + height}" stroke="#bbb" stroke-dasharray="3 3"/>'
        for cut in found["restarts"]
    ]
    out.append(f'<polyline points="{path}" fill="none" stroke="#1a5fb4" stroke-width="1.2"/>')
    out.append(f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{name}</text>')
    out.append(
        f'<text x="{left - 8}" y="{top + 30}" text-anchor="end" fill="#777">up to {most:.1f} {unit}</text>'
    )
    return out


def picture(found):
    curves = [
        ("pss", "memory (PSS)", 1024, "MB"),
        ("descriptors", "descriptors", 1, ""),
        ("threads", "threads", 1, ""),
        ("disk", "disk (.svc)", 1 << 20, "MB"),
        ("agents", "agents on record", 1, ""),
        ("live", "agents alive", 1, ""),
        ("p50", "answer, median", 1, "ms"),
        ("p99", "answer, 99 of 100", 1, "ms"),
    ]
    height = 30 + 84 * len(curves) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="810" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="150" y="20">{found["minutes"]:g} minutes of mixed work; dashed: the daemon restarted</text>',
    ]
    for at, curve in enumerate(curves):
        out += panel(found, 30 + 84 * at, *curve)
    marks = [(part, f"{found['minutes'] * part / 4:g} min") for part in range(5)]
    out += [
        f'<text x="{150 + 640 * part / 4}" y="{height - 6}" text-anchor="middle" fill="#777">{mark}</text>'
        for part, mark in marks
    ]
    return "\n".join(out + ["</svg>"]) + "\n"


def write_report(found, folder):
    """Writes table.md and soak.svg, prints the table; 1 if something failed or grows."""
    table = text(found)
    with open(os.path.join(folder, "table.md"), "w") as file:
        file.write(table)
    with open(os.path.join(folder, "soak.svg"), "w") as file:
        file.write(picture(found))
    print(table, end="")
    grows = any(row["verdict"] == "GROWS" for row in rows(found))
    return 1 if grows or found["failures"] else 0


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "target/soak"
    with open(os.path.join(where, "samples.json")) as samples:
        sys.exit(write_report(json.load(samples), where))
