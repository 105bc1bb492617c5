"""What is missing is found by command or by file, and each package is asked for once."""

from . import packages, targets


def test_missing(tmp_path):
    there = tmp_path / "there.so"
    there.touch()
    tools = ("sh:dash", f"{tmp_path}/*.so:library", "no-such-command-x:one", f"{tmp_path}/none*:two", "none-y:one")
    assert packages.missing(tools) == ["one", "two"]


def test_every_target_says_what_it_needs():
    for name, (kind, _) in targets.known().items():
        assert kind.tools and all(len(tool.split(":")) == 2 for tool in kind.tools), name
        assert kind.about and kind.title, name
