"""The rules. Each takes the project's files and yields findings."""

import ast
import re
from pathlib import Path, PurePosixPath

from . import circles, rooms, rust
from .project import ROOT, Finding, git

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80
COMMENT_WIDTH_MAX = 120
TITLE_MAX = 72
CIRCLE_FILES_MAX = 4
VISIBLE_FIELDS_MAX = 12
SOURCES = (".rs", ".py", ".sh")
# Texts of others, and records of what was measured.
FOREIGN = ("LICENSE", "tools/lab/recorded/", "tools/bench/recorded/", "tools/lab/published.yaml")


class Source:
    """A file of the project, read once."""

    def __init__(self, path, root=ROOT):
        self.path = path
        self.text = (Path(root) / path).read_text(errors="replace")
        self.lines = self.text.splitlines()

    @property
    def is_code(self):
        return self.path.endswith(SOURCES) or self.path in ("dev", ".ci/run")


def long_files(sources, excuses):
    """A file has one subject; past so many lines it has two."""
    for source in sources:
        length = len(source.lines)
        if source.is_code and length > FILE_LINES_MAX and not excuses.allows("file", source.path, length):
            yield Finding(source.path, 0, "long-file", f"{length} lines: what is its second subject?")


def long_functions(sources, excuses):
    """A function is understood at one look."""
    for source in sources:
        for name, first, length in _functions(source):
            if length > FUNCTION_LINES_MAX and not excuses.allows("function", f"{source.path}::{name}", length):
                yield Finding(source.path, first, "long-function", f"{name} has {length} lines")


def _functions(source):
    if source.path.endswith(".rs"):
        return [(function.name, function.first, function.length) for function in rust.functions(source.lines)]
    if source.path.endswith(".py"):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(ast.parse(source.text)) if isinstance(node, kinds)]
        return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in nodes]
    return []


def wide_comments(sources, _excuses):
    """A comment is as wide as the code around it. What can't be broken (an address, a table) may be wider."""
    for source in sources:
        if not source.is_code:
            continue
        for number, line in enumerate(source.lines, 1):
            words = line.split()
            begins = words[0].startswith("//" if source.path.endswith(".rs") else "#") if words else False
            if len(line) > COMMENT_WIDTH_MAX and begins and len(words) > 2 and words[1] != "|":
                yield Finding(
                    source.path, number, "wide-comment", f"{len(line)} characters, {COMMENT_WIDTH_MAX} at most"
                )


def scattered_types(sources, _excuses):
    """The methods of a type are in the type's own folder, or below it."""
    home = {}
    for source in sources:
        if source.path.endswith(".rs"):
            for name in rust.types(source.lines):
                home.setdefault((_crate(source.path), name), []).append(PurePosixPath(source.path).parent)
    for source in sources:
        if not source.path.endswith(".rs"):
            continue
        folder = PurePosixPath(source.path).parent
        for name, number in rust.inherent_impls(source.lines):
            homes = home.get((_crate(source.path), name), [])
            if homes and not any(place == folder or place in folder.parents for place in homes):
                places = ", ".join(map(str, homes))
                yield Finding(source.path, number, "scattered-type", f"methods of {name}, which lives in {places}")


def import_circles(sources, excuses):
    """Few files of a crate use each other in a circle: only as many as are understood together."""
    crates = {}
    for source in sources:
        if match := _CRATE_SOURCE.match(source.path):
            crates.setdefault(match.group(1), []).append(source)
    for folder, files in crates.items():
        crate = circles.Crate(files)
        for circle in circles.circles(crate.uses()):
            if len(circle) > CIRCLE_FILES_MAX and not excuses.allows("circle", folder, len(circle)):
                names = ", ".join(sorted(crate.paths[module].removeprefix(folder + "/src/") for module in circle))
                yield Finding(folder, 0, "import-circle", f"{len(circle)} files use each other in a circle: {names}")


_CRATE_SOURCE = re.compile(r"(crates/[^/]+)/src/.*\.rs$")


def visible_fields(sources, excuses):
    """A type that lets its whole crate at its fields has few of them. Plain data, public to all, is another matter."""
    for source in sources:
        if not source.path.endswith(".rs"):
            continue
        for name, line, count in rust.visible_fields(source.lines):
            if count > VISIBLE_FIELDS_MAX and not excuses.allows("fields", f"{source.path}::{name}", count):
                yield Finding(
                    source.path, line, "visible-fields", f"{count} fields of {name} are the crate's to change"
                )


def _crate(path):
    """What a file is compiled into: a crate, or one of its tests or examples."""
    parts = PurePosixPath(path).parts
    return parts[:3] if len(parts) > 3 and parts[0] == "crates" else parts[:1]


def banned_words(sources, _excuses):
    """The glossary has the field's word for some words that this project used once."""
    glossary = next((source for source in sources if source.path == "docs/glossary.md"), None)
    banned = dict(re.findall(r"^- `([^`]+)`: (.+)$", glossary.text, re.MULTILINE)) if glossary else {}
    patterns = {word: re.compile(rf"(?<![a-z]){re.escape(word)}(?![a-z])", re.IGNORECASE) for word in banned}
    for source in sources:
        if not source.path.startswith("crates/"):
            continue
        for number, line in enumerate(source.lines, 1):
            for word, pattern in patterns.items():
                if pattern.search(line):
                    yield Finding(source.path, number, "banned-word", f"'{word}': the glossary says {banned[word]}")


_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:crates|docs|tests|scripts|tools)/[\w./-]+)`")


def missing_files(sources, _excuses, root=ROOT):
    """Files that documents and comments name are there."""
    for source in sources:
        is_document = source.path.endswith(".md") and source.path != "CHANGELOG.md"
        if not is_document and not source.path.endswith(".rs"):
            continue
        folder = Path(root) / PurePosixPath(source.path).parent
        for number, line in enumerate(source.lines, 1):
            # A comment may mean the tests of its own crate.
            crate = PurePosixPath(source.path).parts[:2] if source.path.endswith(".rs") else ()
            named = [(_there(Path(root), crate, path), path) for path in _PATH.findall(line)]
            if is_document:
                named += [(folder / path, path) for path in _LINK.findall(line) if "://" not in path]
            for file, path in named:
                # A folder of Rust modules is named without its end.
                if not file.exists() and not file.with_name(file.name + ".rs").exists():
                    yield Finding(source.path, number, "missing-file", f"there is no {path}")


def _there(root, crate, path):
    inside = root.joinpath(*crate) / path
    return inside if inside.exists() else root / path


_DECISION = re.compile(r"\bdecisions?[ /](\d{4})\b|// (\d{4}): |//.*\((0\d{3})(?:, points? \d+)?[,;)]")
_POINT = re.compile(r"\b(0\d{3}), point (\d+)\b")


def missing_decisions(sources, _excuses):
    """A decision that a comment names by number is on a page, and the page has the point that is named with it."""
    pages = {
        match.group(1): set(re.findall(r"^(\d+)\. ", source.text, re.MULTILINE))
        for source in sources
        if (match := re.match(r"docs/decisions/(\d{4})-", source.path))
    }
    for source in sources:
        if not source.path.endswith((".rs", ".py", ".md")) or source.path.startswith("tools/tidy/"):
            continue
        for number, line in enumerate(source.lines, 1):
            for named in _DECISION.findall(line):
                decision = "".join(named)
                if decision not in pages:
                    yield Finding(source.path, number, "missing-decision", f"there is no decision {decision}")
            for decision, point in _POINT.findall(line):
                if point not in pages.get(decision, {point}):
                    yield Finding(source.path, number, "missing-decision", f"decision {decision} has no point {point}")


# What the Python of a folder may import beside itself; ARCHITECTURE.md has the same as a table.
MAY_USE = {
    "tests": {"tools.harness", "tools.image", "tools.kubernetes"},
    "tools.harness": set(),
    "tools.bench": {"tools.harness"},
    "tools.lab": {"tools.harness", "tools.bench"},
    "tools.torment": {"tools.harness"},
    "tools.upgrade": {"tools.harness"},
    "tools.image": set(),
    "tools.kubernetes": {"tools.image"},
    "tools.tidy": set(),
}


def wrong_imports(sources, _excuses):
    """The tools depend on each other one way, and on no test."""
    for source in sources:
        home = _part(source.path.removesuffix(".py").replace("/", "."))
        if home is None or not source.path.endswith(".py"):
            continue
        for number, module in _imports(source):
            used = _part(module)
            if used not in (None, home) and used not in MAY_USE[home]:
                yield Finding(source.path, number, "wrong-import", f"{home} does not use {used}")


def _part(module):
    return next((part for part in MAY_USE if f"{module}.".startswith(f"{part}.")), None)


def _imports(source):
    """Line and full name of every module that a file imports, `from .. import` included."""
    package = source.path.split("/")[:-1]
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{name.name}") for name in node.names)


def tests_left_out(sources, _excuses):
    """Where a crate's tests are one program, each file of them is named there, or is another: else nobody runs it."""
    texts = {source.path: source.text for source in sources}
    for path in texts:
        folder, file = str(PurePosixPath(path).parent), PurePosixPath(path)
        if not re.fullmatch(r"crates/[^/]+/tests", folder) or file.suffix != ".rs" or file.name == "main.rs":
            continue
        main = texts.get(f"{folder}/main.rs")
        if f'path = "tests/{file.name}"' in texts.get(str(file.parent.parent / "Cargo.toml"), ""):
            continue
        if main is not None and not re.search(rf"^mod {file.stem};$", main, re.MULTILINE):
            yield Finding(path, 0, "test-left-out", f"{folder}/main.rs has no `mod {file.stem};`")


def rooms_as_drawn(sources, _excuses, root=ROOT):
    """The picture of the crates shows what their manifests say, and the table of crates has them all."""
    manifests = {
        PurePosixPath(source.path).parts[1]: source.text
        for source in sources
        if re.fullmatch(r"crates/[^/]+/Cargo\.toml", source.path)
    }
    table = next((source.text for source in sources if source.path == "ARCHITECTURE.md"), "")
    picture = Path(root) / rooms.PICTURE
    svg = picture.read_text() if picture.exists() else ""
    for problem in rooms.problems(svg, manifests, table):
        yield Finding(rooms.PICTURE, 0, "rooms", f"{problem}; ./dev tidy --draw draws the picture anew")


def commit_titles(root=ROOT):
    """A commit has one subject, which fits into one line. Commits from before this rule are as they are."""
    first = (git(root, "log", "--diff-filter=A", "--format=%H", "--", "tools/tidy/rules.py") or "").split()
    if not first:
        return
    for line in (git(root, "log", "--no-merges", "--format=%h %s", f"{first[-1]}..HEAD") or "").splitlines():
        commit, _, title = line.partition(" ")
        if len(title) > TITLE_MAX:
            yield Finding(
                "commit " + commit, 0, "commit-title", f"{len(title)} characters, {TITLE_MAX} at most: {title}"
            )
        if title.endswith("."):
            yield Finding("commit " + commit, 0, "commit-title", f"ends with a full stop: {title}")


OF_FILES = [
    long_files,
    long_functions,
    wide_comments,
    scattered_types,
    import_circles,
    visible_fields,
    banned_words,
    missing_files,
    missing_decisions,
    wrong_imports,
    tests_left_out,
    rooms_as_drawn,
]
