"""`python -m tools.tidy`: see ./dev tidy --help."""

import argparse
import sys
from collections import Counter

from . import rooms, rules
from .project import EXCUSES, ROOT, BadExcuse, Excuses, tracked


def findings(root=ROOT):
    """Everything that breaks a rule."""
    excuses = Excuses(EXCUSES.read_text())
    sources = [
        rules.Source(path, root) for path in tracked(root) if not path.startswith(rules.FOREIGN) and is_text(path)
    ]
    found = [finding for rule in rules.OF_FILES for finding in rule(sources, excuses)]
    return found + list(excuses.stale()) + list(rules.commit_titles(root))


def is_text(path):
    return path.endswith((".rs", ".py", ".sh", ".md", ".toml")) or path in ("dev", ".ci/run")


def main():
    parser = argparse.ArgumentParser(prog="./dev tidy", description="Rules of CONTRIBUTING.md that a machine can keep.")
    parser.add_argument("--count", action="store_true", help="only how many findings each rule has")
    parser.add_argument("--draw", action="store_true", help=f"draw {rooms.PICTURE} anew first")
    options = parser.parse_args()
    if options.draw:
        rooms.write()
    try:
        found = findings()
    except BadExcuse as error:
        sys.exit(f"tidy: {error}")
    if options.count:
        for rule, count in Counter(finding.rule for finding in found).most_common():
            print(f"{count:6} {rule}")
    else:
        for finding in found:
            print(finding)
    sys.exit(f"tidy: {len(found)} findings" if found else 0)


if __name__ == "__main__":
    main()
