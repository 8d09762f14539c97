"""Cron expressions with their occurrences by croniter, a line for each, for tests/suite/delivery/cron_times.rs.

    cases.py COUNT SEED

croniter finds the local times. When the clock shows them is said here, by the rule of docs/tutorials/cron.md: an interval
occurs whenever it is shown, a fixed time when the clock first reaches or passes it.
"""

import random
import sys
import zoneinfo
from datetime import datetime, timedelta, timezone

import tzdata
from croniter import CroniterBadDateError, croniter

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
OCCURRENCES = 20
FROM, YEARS = datetime(1990, 1, 1, tzinfo=timezone.utc), 40
zoneinfo.reset_tzpath(to=())
dice = random.Random(SEED)


def field(first, last):
    number = lambda: dice.randint(first, last)
    # croniter takes `8-8/1` for `*`.
    low, high = sorted(dice.sample(range(first, last + 1), 2))
    return dice.choices(
        [
            "*", str(low), f"{low}-{high}", f"*/{dice.randint(1, max(2, last // 2))}", f"{low}-{high}/{dice.randint(1, 5)}",
            f"*,{low}", f"{low},{high},{number()}",
        ],
        [35, 25, 12, 12, 8, 2, 6],
    )[0]


def expression():
    minute, hour, day, month, weekday = field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)
    kind = dice.randrange(8)
    if kind == 0:
        day = "L"
    elif kind == 1:
        # With a day of month as well croniter wants both, cron one of them.
        day, weekday = "*", f"{dice.randint(0, 6)}#{dice.randint(1, 5)}"
    elif kind == 2:
        day, weekday = "*", f"{dice.randint(0, 6)}L"
    return [minute, hour, day, month, weekday]


def offset(instant, zone):
    return instant.astimezone(zone).utcoffset()


def shown(local, zone):
    """The instants at which the clock shows a local time."""
    both = {local.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone(zone).replace(tzinfo=None) == local)


def end_of_gap(local, zone):
    """The instant at which the clock skips a local time."""
    late, early = (local.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc) for fold in (0, 1))
    before = offset(early, zone)
    while late - early > timedelta(seconds=1):
        middle = early + timedelta(seconds=(late - early).total_seconds() // 2)
        early, late = (middle, late) if offset(middle, zone) == before else (early, middle)
    return late


def occurrences(fields, zone, after):
    spelled = fields[:]
    if spelled[4].endswith("L"):
        spelled[4] = "L" + spelled[4][:-1]
    local = after.astimezone(zone).replace(tzinfo=None) - timedelta(days=2)
    times = croniter(" ".join(spelled), local, implement_cron_bug=True, max_years_between_matches=50)
    interval = fields[0].startswith("*") or fields[1].startswith("*")
    found, last = set(), None
    # What is shown twice comes up to a day later again.
    while last is None or len(found) < OCCURRENCES or local < last + timedelta(days=1):
        local = times.get_next(datetime)
        instants = shown(local, zone)
        if not interval:
            instants = instants[:1] or [end_of_gap(local, zone)]
        for at in instants:
            if at > after:
                found.add(at)
                if len(found) == OCCURRENCES:
                    last = local
    return sorted(found)[:OCCURRENCES]


zones = sorted(zoneinfo.available_timezones() - {"localtime", "posixrules", "Factory"})
refused = 0
print(f"# cases.py {COUNT} {SEED}: croniter, time zones of {tzdata.IANA_VERSION}")
for _ in range(COUNT):
    fields, name = expression(), dice.choice(zones)
    zone, after = zoneinfo.ZoneInfo(name), FROM + timedelta(seconds=dice.randrange(YEARS * 365 * 86_400))
    try:
        times = occurrences(fields, zone, after)
    except CroniterBadDateError:
        refused += 1
        continue
    seconds = " ".join(str(int(at.timestamp())) for at in times)
    print("\t".join([" ".join(fields), name, str(int(after.timestamp())), seconds]))
print(f"{COUNT - refused} expressions; {refused} never occur", file=sys.stderr)
