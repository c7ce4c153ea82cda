#!/usr/bin/env python3
"""The next time of cron expressions as the library croniter (PyPI) counts it, to compare ours with.

Standard input has one JSON list per line: expression, seconds since 1970. Standard output has one line for each: the
next time in seconds since 1970 in UTC, or `none`. Exit code 77 when croniter is not installed.
"""

import datetime
import json
import sys

try:
    import croniter
except ImportError:
    sys.exit(77)

for line in sys.stdin:
    expression, after = json.loads(line)
    start = datetime.datetime.fromtimestamp(after, datetime.timezone.utc)
    try:
        found = croniter.croniter(expression, start, max_years_between_matches=40).get_next(datetime.datetime)
        print(int(found.timestamp()))
    except croniter.CroniterBadDateError:
        print("none")
    except croniter.CroniterBadCronError:
        print("refused")
