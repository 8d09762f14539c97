#!/usr/bin/env python3
"""Draws how dwell grows, from what `dwell bench --json` wrote: benches/growth.py RESULTS.json > picture.svg

    dwell bench --quick --only scale --only pending --redis URL --json > growth.json

A panel for each axis: messages a second, and the time that Redis works for a message, each as a multiple of the first size.
"""

import json
import math
import re
import sys

WIDTH, HEIGHT, COLUMNS = 250, 170, 3
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 30, 34
SPEED, REDIS = "#4c78a8", "#f58518"
# Highest multiple that a panel shows: what is above is drawn at its edge.
MOST, LEAST = 8.0, 0.125


def main():
    rows = json.loads(open(sys.argv[1]).read())["rows"]
    axes = curves(rows)
    lines = math.ceil(len(axes) / COLUMNS)
    width, height = WIDTH * COLUMNS, HEIGHT * lines + 24
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">')
    print(f'<rect width="{width}" height="{height}" fill="white"/>')
    print(f'<text x="{LEFT}" y="16"><tspan fill="{SPEED}">messages a second</tspan> and '
          f'<tspan fill="{REDIS}">time of Redis for a message</tspan>, as multiples of the first size</text>')
    for place, (axis, speed, redis) in enumerate(axes):
        x, y = WIDTH * (place % COLUMNS), 24 + HEIGHT * (place // COLUMNS)
        print(f'<g transform="translate({x},{y})">{panel(axis, speed, redis)}</g>')
    print("</svg>")


def curves(rows):
    """Each axis with the points (size, multiple) of both curves."""
    found = {}
    for row in rows:
        pending = re.fullmatch(r"(Redis, )?life of 100 at (\d+) pending", row["way"])
        scale = re.fullmatch(r"(Redis, )?([\d,]+) (\w+)", row["way"]) if row["measure"] == "scale" else None
        if pending:
            of_redis, size, axis = pending[1], int(pending[2]), "pending messages"
            # It is a time, and the other curves are speeds.
            value = row["median"] if of_redis else 1 / row["median"]
        elif scale:
            of_redis, size, axis, value = scale[1], int(scale[2].replace(",", "")), scale[3], row["median"]
        else:
            continue
        found.setdefault(axis, ([], []))[1 if of_redis else 0].append((size, value))
    of_first = lambda points: [(size, value / points[0][1]) for size, value in points]
    return [(axis, of_first(speed), of_first(redis)) for axis, (speed, redis) in found.items()]


def panel(axis, speed, redis):
    sizes = [size for size, _ in speed]
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    span = math.log(max(sizes) / min(sizes)) or 1.0
    across = lambda size: LEFT + inner_width * math.log(size / min(sizes)) / span
    share = lambda value: math.log(min(max(value, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    up = lambda value: TOP + inner_height * (1 - share(value))
    parts = [f'<text x="{LEFT}" y="{TOP - 10}" font-weight="bold">{axis}</text>']
    for value in (0.125, 0.5, 1, 2, 8):
        colour = "#999" if value == 1 else "#ddd"
        parts.append(f'<path d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}" stroke="{colour}"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{up(value) + 4:.1f}" text-anchor="end" fill="#555">{value:g}</text>')
    for size in sizes:
        parts.append(f'<text x="{across(size):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="#555">{short(size)}</text>')
    for points, colour in ((speed, SPEED), (redis, REDIS)):
        if points:
            path = " ".join(f"{across(size):.1f},{up(value):.1f}" for size, value in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{across(size):.1f}" cy="{up(value):.1f}" r="2.5" fill="{colour}"/>' for size, value in points]
    return "".join(parts)


def short(size):
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{size // unit}{name}"
    return str(size)


if __name__ == "__main__":
    main()
