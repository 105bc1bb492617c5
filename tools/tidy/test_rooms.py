"""The picture of the crates shows what the manifests say."""

import re

from . import rooms
from .project import ROOT

MANIFESTS = {
    "base": "[dependencies]\nbytes.workspace = true\n",
    "wire": "[dependencies]\nazekura-base.workspace = true\n\n[dev-dependencies]\nazekura-node.workspace = true\n",
    "node": '[dependencies]\nazekura-base.workspace = true\nazekura-wire = { path = "../wire" }\n[features]\n',
    "alone": "[package]\n",
}
TABLE = "".join(
    f"| `{crate}` | what it is | {word} |\n" for crate, word in [("base", "no"), ("wire", "no"), ("alone", "no")]
)
TABLE += "| `node` | runs it | yes |\n"


def picture():
    return rooms.draw(rooms.from_manifests(MANIFESTS), rooms.does_io(TABLE))


def test_only_direct_ways_are_drawn():
    svg = picture()
    assert rooms.drawn(svg) == (set(MANIFESTS), {("node", "wire"), ("wire", "base")})
    assert not list(rooms.problems(svg, MANIFESTS, TABLE))
    assert svg == picture(), "the same each time"


def test_what_is_drawn_otherwise_is_found():
    changed = MANIFESTS | {"alone": "[dependencies]\nazekura-node.workspace = true\n", "new": "[package]\n"}
    del changed["wire"]
    changed["node"] = "[dependencies]\nazekura-base.workspace = true\n"
    assert list(rooms.problems(picture(), changed, TABLE)) == [
        "new is not drawn",
        "wire is drawn, and there is no such crate",
        "the line from alone to node is not drawn",
        "the line from node to base is not drawn",
        "a line from node to wire is drawn, and there is no such use",
        "a line from wire to base is drawn, and there is no such use",
        "new is not in the table of crates",
        "alone does no I/O and uses node, which does",
    ]
    other = TABLE.replace("| runs it | yes |", "| runs it | no |")
    assert list(rooms.problems(picture(), MANIFESTS, other)) == ["node has the wrong colour"]


def test_crates_stand_apart_and_above_what_they_use():
    manifests = {path.parent.name: path.read_text() for path in ROOT.glob("crates/*/Cargo.toml")}
    layout = rooms.Layout(rooms.without_detours(rooms.from_manifests(manifests)), starts=1)
    crates = [place for place in layout.x if isinstance(place, str)]
    for a in crates:
        for b in crates:
            assert a == b or layout.y(a) != layout.y(b) or abs(layout.x[a] - layout.x[b]) >= rooms.WIDTH
    assert all(layout.y(user) < layout.y(used) for user, used in layout.lines)
    assert not re.search(r"[^\x00-\x7f]", (ROOT / rooms.PICTURE).read_text())
