#!/usr/bin/env python3
"""Draws how long keys wait beside a burst of another one, from what `dwell bench --json` wrote: benches/fair.py RESULTS.json > picture.svg

    dwell bench --only fair --redis URL --json > fair.json

A pair of bars for each of the keys that wait: in a group that is not fair, and in a fair one. The scale is logarithmic.
"""

import json
import math
import re
import sys

LEFT, WIDTH, RIGHT, TOP, LINE = 150, 520, 80, 34, 46
COLOURS = {"plain": "#f58518", "fair": "#4c78a8"}
LEAST_MS, MOST_MS = 1, 100_000


def main():
    rows = [row for row in json.loads(open(sys.argv[1]).read())["rows"] if row["unit"] == "ms"]
    waits = {}
    for row in rows:
        found = re.fullmatch(r"(plain|fair), (.*)", row["way"])
        if found:
            waits.setdefault(found[2], {})[found[1]] = row["median"]
    height = TOP + LINE * len(waits) + 30
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
          'font-family="sans-serif" font-size="12">')
    print(f'<rect width="{LEFT + WIDTH + RIGHT}" height="{height}" fill="white"/>')
    print(f'<text x="{LEFT}" y="18">until it is delivered, ms: <tspan fill="{COLOURS["plain"]}">group that is not fair</tspan>, '
          f'<tspan fill="{COLOURS["fair"]}">fair group</tspan></text>')
    for power in range(int(math.log10(LEAST_MS)), int(math.log10(MOST_MS)) + 1):
        x = across(10 ** power)
        print(f'<path d="M{x:.1f} {TOP - 6}V{height - 24}" stroke="#ddd"/>')
        print(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" fill="#555">{10 ** power:,}</text>')
    for place, (what, ways) in enumerate(waits.items()):
        y = TOP + LINE * place
        print(f'<text x="{LEFT - 8}" y="{y + 21}" text-anchor="end">{what}</text>')
        for of_way, (way, ms) in enumerate(ways.items()):
            top, right = y + 3 + 16 * of_way, across(ms)
            print(f'<rect x="{LEFT}" y="{top}" width="{right - LEFT:.1f}" height="13" fill="{COLOURS[way]}"/>')
            print(f'<text x="{right + 5:.1f}" y="{top + 11}" fill="#333">{ms:,.0f}</text>')
    print("</svg>")


def across(ms):
    share = math.log(min(max(ms, LEAST_MS), MOST_MS) / LEAST_MS) / math.log(MOST_MS / LEAST_MS)
    return LEFT + WIDTH * share


if __name__ == "__main__":
    main()
