"""The picture of the crates, docs/rooms.svg: drawn from what cargo says, and compared with what the manifests say.

A crate stands above all that it uses. Of what it uses, only what it would not reach by way of another one is drawn.
Crates that do I/O, by the table in ARCHITECTURE.md, have another colour.
"""

import json
import random
import re
import subprocess
from itertools import pairwise

from .project import ROOT

PICTURE = "docs/rooms.svg"
PREFIX = "azekura-"
WIDTH, HEIGHT, GAP, RISE, MARGIN = 124, 40, 26, 92, 24
# What a line that passes a layer keeps free of it.
LANE = 12
SWEEPS, STARTS = 24, 24


def from_cargo(root=ROOT):
    """What each crate of the workspace uses, as cargo understands the manifests; tests and build scripts left out."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    packages = json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)[
        "packages"
    ]
    ours = {package["name"] for package in packages}
    return {
        short(package["name"]): {
            short(used["name"]) for used in package["dependencies"] if used["name"] in ours and used["kind"] is None
        }
        for package in packages
    }


def from_manifests(manifests):
    """The same, read off the manifests' text by their folder's name."""
    found = {}
    for folder, text in manifests.items():
        part = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
        used = re.findall(rf"^{PREFIX}([\w-]+)(?:\.workspace)? *=", part.group(1) if part else "", re.MULTILINE)
        found[folder] = set(used)
    return found


def does_io(architecture):
    """Whether each crate does I/O, by the table of crates in ARCHITECTURE.md."""
    return {
        name: word == "yes"
        for name, word in re.findall(r"^\| `([\w-]+)` \|.*\| (yes|no) \|$", architecture, re.MULTILINE)
    }


def short(name):
    return name.removeprefix(PREFIX)


def without_detours(uses):
    """The uses, without those of what is reached by way of another one."""
    reached = {}

    def reach(crate):
        if crate not in reached:
            reached[crate] = set(uses[crate]).union(*(reach(used) for used in uses[crate]))
        return reached[crate]

    return {
        crate: {used for used in all if not any(used in reach(other) for other in all)} for crate, all in uses.items()
    }


def drawn(svg):
    """The crates and the lines of a picture."""
    crates = set(re.findall(r'<g class="[^"]*" data-crate="([\w-]+)">', svg))
    return crates, set(re.findall(r'data-from="([\w-]+)" data-to="([\w-]+)"', svg))


def problems(svg, manifests, architecture):
    """What a picture, and the table of crates, say otherwise than the manifests."""
    uses, io = from_manifests(manifests), does_io(architecture)
    crates, lines = drawn(svg)
    wanted = {(crate, used) for crate, all in without_detours(uses).items() for used in all}
    yield from (f"{crate} is not drawn" for crate in sorted(set(uses) - crates))
    yield from (f"{crate} is drawn, and there is no such crate" for crate in sorted(crates - set(uses)))
    yield from (f"the line from {a} to {b} is not drawn" for a, b in sorted(wanted - lines))
    yield from (f"a line from {a} to {b} is drawn, and there is no such use" for a, b in sorted(lines - wanted))
    yield from (f"{crate} is not in the table of crates" for crate in sorted(set(uses) - set(io)))
    for crate in sorted(set(uses) & set(io)):
        if io[crate] != (f'<g class="io" data-crate="{crate}">' in svg):
            yield f"{crate} has the wrong colour"
        for used in sorted(uses[crate]):
            if not io[crate] and io.get(used):
                yield f"{crate} does no I/O and uses {used}, which does"


class Layout:
    """Where crates stand and lines run. A line that passes layers has a place in each of them."""

    def __init__(self, uses, starts=STARTS):
        self.lines = [(crate, used) for crate in sorted(uses) for used in sorted(uses[crate])]
        self.level = {}
        for crate in sorted(uses):
            self._stand(crate, uses)
        self.layers = [[] for _ in range(max(self.level.values()) + 1)]
        ends = {end for line in self.lines for end in line}
        for crate in sorted(ends):
            self.layers[self.level[crate]].append(crate)
        self.ways = {}
        for crate, used in self.lines:
            passed = [(crate, used, at) for at in range(self.level[crate] - 1, self.level[used], -1)]
            for place in passed:
                self.layers[place[2]].append(place)
            self.ways[crate, used] = [crate, *passed, used]
        self.steps = [step for way in self.ways.values() for step in pairwise(way)]
        self._order(starts)
        self._place()

    def _stand(self, crate, uses):
        if crate not in self.level:
            self.level[crate] = max((self._stand(used, uses) + 1 for used in uses[crate]), default=0)
        return self.level[crate]

    def _neighbours(self):
        near = {}
        for upper, lower in self.steps:
            near.setdefault(upper, []).append(lower)
            near.setdefault(lower, []).append(upper)
        return near

    def crossings(self):
        """Pairs of lines that cross."""
        at = {place: index for layer in self.layers for index, place in enumerate(layer)}
        by_level = {}
        for upper, lower in self.steps:
            by_level.setdefault(self._level(lower), []).append((at[upper], at[lower]))
        return sum(
            (a[0] - b[0]) * (a[1] - b[1]) < 0
            for steps in by_level.values()
            for i, a in enumerate(steps)
            for b in steps[:i]
        )

    def _level(self, place):
        return place[2] if isinstance(place, tuple) else self.level[place]

    def _order(self, starts):
        """Each place goes to the middle of its neighbours, then pairs change places while that saves crossings.

        Tried from several beginnings, which are the same each time.
        """
        near, chance = self._neighbours(), random.Random(1)
        best, least = [list(layer) for layer in self.layers], self.crossings()
        for sweep in range(SWEEPS * starts):
            up = sweep % 2 == 0
            if sweep % SWEEPS == 0:
                for layer in self.layers:
                    chance.shuffle(layer)
            for layer in self.layers if up else reversed(self.layers):
                at = {place: index for other in self.layers for index, place in enumerate(other)}
                side = {p: [at[q] for q in near[p] if (self._level(q) < self._level(p)) == up] for p in layer}
                layer.sort(key=lambda p, at=at, side=side: sum(side[p]) / len(side[p]) if side[p] else at[p])
            self._exchange()
            if self.crossings() < least:
                best, least = [list(layer) for layer in self.layers], self.crossings()
        self.layers = best

    def _exchange(self):
        count, before = self.crossings(), None
        while count != before:
            before = count
            for layer in self.layers:
                for i in range(len(layer)):
                    for j in range(i):
                        layer[i], layer[j] = layer[j], layer[i]
                        if (now := self.crossings()) < count:
                            count = now
                        else:
                            layer[i], layer[j] = layer[j], layer[i]

    def _place(self):
        near = self._neighbours()
        self.x = {}
        for layer in self.layers:
            at = 0
            for place in layer:
                self.x[place] = at + half(place)
                at += 2 * half(place) + GAP
        for sweep in range(20 * SWEEPS):
            for layer in self.layers if sweep % 2 else reversed(self.layers):
                wishes = []
                for place in layer:
                    # A line that passes layers is to be straight.
                    pulls = [
                        (self.x[q], 6 if isinstance(place, tuple) and isinstance(q, tuple) else 1) for q in near[place]
                    ]
                    wishes.append(sum(x * pull for x, pull in pulls) / sum(pull for _, pull in pulls))
                self.x.update(zip(layer, spread(layer, wishes), strict=True))
        left = min(self.x[place] - half(place) for place in self.x)
        self.x = {place: round(x - left + MARGIN) for place, x in self.x.items()}
        for alone in sorted(set(self.level) - set(self.x)):
            self.x[alone] = max(x for place, x in self.x.items() if self._level(place) == 0) + WIDTH + GAP

    def y(self, place):
        return MARGIN + (len(self.layers) - 1 - self._level(place)) * RISE


def half(place):
    return LANE / 2 if isinstance(place, tuple) else WIDTH / 2


def spread(layer, wishes):
    """Places as near to their wishes as their order and sizes allow (pool adjacent violators)."""
    offset, offsets = 0, []
    for index, place in enumerate(layer):
        offset += half(place) + (half(layer[index - 1]) + GAP if index else 0)
        offsets.append(offset)
    pools = []
    for wish, offset in zip(wishes, offsets, strict=True):
        pools.append([wish - offset, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [[(a * n + b * m) / (n + m), n + m]]
    means = [mean for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


STYLE = """\
    .box { fill: #ffffff; stroke: #57606a } .io .box { fill: #fff4e0; stroke: #b7791f }
    .box { stroke-width: 1.5 } text { fill: #1f2328 } .small { font-size: 12px; fill: #57606a }
    .line { stroke: #57606a; stroke-width: 1.5; fill: none; marker-end: url(#tip) }"""


def draw(uses, io):
    """The picture."""
    layout = Layout(without_detours(uses))
    right = max(layout.x[place] + half(place) for place in layout.x) + MARGIN
    bottom = 2 * MARGIN + (len(layout.layers) - 1) * RISE + HEIGHT + 28
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:.0f} {bottom}" role="img"'
        ' aria-labelledby="title" font-family="system-ui, sans-serif" font-size="15">',
        "  <!-- Drawn by tools/tidy/rooms.py. -->",
        '  <title id="title">The crates, each above those that it uses</title>',
        f"  <style>\n{STYLE}\n  </style>",
        '  <defs><marker id="tip" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" refX="8" refY="4"'
        ' orient="auto"><path fill="#57606a" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'  <rect width="{right:.0f}" height="{bottom}" fill="#f6f8fa"/>',
    ]
    for (crate, used), way in layout.ways.items():
        out.append(f'  <path class="line" data-from="{crate}" data-to="{used}" d="{path(layout, way)}"/>')
    for crate in sorted(uses):
        x, y = layout.x[crate], layout.y(crate)
        out.append(
            f'  <g class="{"io" if io.get(crate) else "pure"}" data-crate="{crate}">'
            f'<rect class="box" x="{x - WIDTH // 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
            f'<text x="{x}" y="{y + HEIGHT // 2 + 5}" text-anchor="middle">{crate}</text></g>'
        )
    out.append(
        f'  <text x="{MARGIN}" y="{bottom - 18}" class="small">'
        "An arrow: uses. What is reached by way of another crate has none. Yellow: does I/O.</text>"
    )
    return "\n".join([*out, "</svg>", ""])


def path(layout, way):
    """A line from the bottom of a crate through its places in the layers between to the top of another one."""
    x, y = layout.x[way[0]], layout.y(way[0]) + HEIGHT
    parts = [f"M{x},{y}"]
    for place in way[1:]:
        to_x, to_y = layout.x[place], layout.y(place)
        middle = (y + to_y) // 2
        parts.append(f"C{x},{middle} {to_x},{middle} {to_x},{to_y}")
        x, y = to_x, to_y
        if isinstance(place, tuple):
            y += HEIGHT
            parts.append(f"V{y}")
    return " ".join(parts)


def write(root=ROOT):
    """Draws the picture anew."""
    io = does_io((root / "ARCHITECTURE.md").read_text())
    (root / PICTURE).write_text(draw(from_cargo(root), io))
