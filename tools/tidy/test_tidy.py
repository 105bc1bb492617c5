"""Each rule finds what breaks it, and nothing else."""

import subprocess

import pytest

from . import circles, rules, rust
from .project import BadExcuse, Excuses, tracked

NONE = Excuses("")


@pytest.fixture
def source(tmp_path):
    """A function that writes a file of a project and reads it as the rules do."""

    def make(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return rules.Source(path, tmp_path)

    return make


def test_functions_of_rust():
    text = """\
fn short() {}
pub(crate) const fn two(
    a: u32,
) -> u32 {
    a
}
trait T {
    fn without(
        &self,
    );
    fn with(&self) {
        fn inner() {
        }
    }
}
"""
    found = [(function.name, function.first, function.length) for function in rust.functions(text.splitlines())]
    assert found == [("short", 1, 1), ("two", 2, 5), ("with", 11, 4), ("inner", 12, 2)]


def test_long_files_and_functions_need_an_excuse(source):
    body = "    x();\n" * 498
    long = source("crates/a/src/lib.rs", f"fn f() {{\n{body}}}\n\n")
    assert [finding.rule for finding in rules.long_files([long], NONE)] == ["long-file"]
    assert [finding.rule for finding in rules.long_functions([long], NONE)] == ["long-function"]
    excuses = Excuses("file crates/a/src/lib.rs 501 a table\nfunction crates/a/src/lib.rs::f 600 a table\n")
    assert not list(rules.long_files([long], excuses)) and not list(rules.long_functions([long], excuses))
    assert [str(finding) for finding in excuses.stale()] == [
        "tools/tidy/excuses.txt:2: crates/a/src/lib.rs::f: 500 now, not 600 [excuses]"
    ]
    too_small = Excuses("file crates/a/src/lib.rs 500 a table")
    assert list(rules.long_files([long], too_small))


def test_long_functions_of_python(source):
    long = source("tools/a.py", "def f():\n" + "    x()\n" * 80)
    assert [finding.text for finding in rules.long_functions([long], NONE)] == ["f has 81 lines"]


@pytest.mark.parametrize("line", ["file a/b.rs", "file a/b.rs many because", "folder a 5 because"])
def test_an_excuse_that_can_not_be_read_is_named(line):
    with pytest.raises(BadExcuse, match="excuses.txt:1"):
        Excuses(line)


def test_wide_comments(source):
    word, address = "word " * 25, "https://example.org/" + "a" * 120
    wide = source("crates/a/src/lib.rs", f'// {word}\n// {address}\nlet s = "{word}";\n/// short\n')
    assert [finding.line for finding in rules.wide_comments([wide], NONE)] == [1]


def test_methods_live_where_their_type_does(source):
    home = source("crates/a/src/store/mod.rs", "pub struct Store {\n}\n")
    below = source("crates/a/src/store/log/mod.rs", "impl Store {\n}\n")
    beside = source("crates/a/src/tools.rs", "impl Store {\n}\nimpl Display for Store {\n}\n")
    test = source("crates/a/tests/it.rs", "struct Store;\nimpl Store {\n}\n")
    found = list(rules.scattered_types([home, below, beside, test], NONE))
    assert [(finding.path, finding.line) for finding in found] == [("crates/a/src/tools.rs", 1)]


@pytest.mark.parametrize(
    "tree, named",
    [
        ("crate::a::B", [("crate::a", "B")]),
        ("crate::{a::B, C as D}", [("crate::a", "B"), ("crate", "D")]),
        ("super::a::{self, b::*, c::{D, E}}", [("super", "self"), ("super::a", "*"), ("super::a::c", "D")]),
    ],
)
def test_what_a_use_names(tree, named):
    found = {name: "::".join(path) for path, name in circles.leaves(tree)}
    for path, name in named:
        assert found[name].startswith(path), found


def test_circles_of_imports(source):
    names = "abcde"
    # Each uses the next one: by its folder's root, which passes its type on, in the midst of code, or directly.
    files = [source("crates/x/src/lib.rs", "mod a;\npub use a::A;\n")]
    files += [source("crates/x/src/b.rs", "use crate::c::C;\n"), source("crates/x/src/c.rs", "use super::d::*;\n")]
    files += [source("crates/x/src/d.rs", "fn f() -> u32 {\n    crate::e::g()\n}\n")]
    files += [source("crates/x/src/e/mod.rs", "pub(crate) use inner::E;\n"), source("crates/x/src/e/inner.rs", "")]
    files += [source("crates/x/src/a.rs", "use crate::b::B;\n// use crate::e::E;\n")]
    assert not list(rules.import_circles(files, NONE))
    files[4] = source("crates/x/src/e/mod.rs", "pub(crate) use inner::E;\nuse crate::A;\n")
    found = list(rules.import_circles(files, NONE))
    assert [finding.path for finding in found] == ["crates/x"]
    assert all(f"{name}.rs" in found[0].text for name in names[:4]) and "e/mod.rs" in found[0].text
    assert not list(rules.import_circles(files, Excuses("circle crates/x 5 a test")))
    # What only tests use is no reason to read both together.
    files[4] = source("crates/x/src/e/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::A;\n}\n")
    assert not list(rules.import_circles(files, NONE))


def test_fields_that_the_whole_crate_can_touch(source):
    fields = "".join(f"    pub(crate) f{n}: u32,\n" for n in range(13))
    god = source(
        "crates/a/src/lib.rs",
        f"pub struct God {{\n{fields}    own: u32,\n}}\npub struct Data {{\n    pub a: u32,\n}}\n",
    )
    assert [finding.text for finding in rules.visible_fields([god], NONE)] == [
        "13 fields of God are the crate's to change"
    ]
    assert not list(rules.visible_fields([god], Excuses("fields crates/a/src/lib.rs::God 13 a test")))


def test_banned_words_come_from_the_glossary(source):
    glossary = source("docs/glossary.md", "- `leader`: primary\n")
    code = source("crates/a/src/lib.rs", "let leader_id = 1;\nlet leadership = 2;\n")
    found = list(rules.banned_words([glossary, code], NONE))
    assert [(finding.line, finding.text) for finding in found] == [(1, "'leader': the glossary says primary")]


def test_files_that_documents_name_exist(source, tmp_path):
    code = source("crates/a/src/lib.rs", "//! See `tools/harness` and `docs/gone.md`.\n")
    (tmp_path / "tools" / "harness").mkdir(parents=True)
    document = source("docs/page.md", "[a](../crates/a/src/lib.rs#L1) [b](b.md) [c](https://example.org) `crates/a`\n")
    found = [finding.text for finding in rules.missing_files([code, document], NONE, tmp_path)]
    assert found == ["there is no docs/gone.md", "there is no b.md"]


def test_decisions_exist(source):
    page = source("docs/decisions/0001-pages.md", "")
    code = source("crates/a/src/lib.rs", "// As decision 0001 says.\n// 0002: never.\n/// (decision 0003)\n")
    found = [finding.text for finding in rules.missing_decisions([page, code], NONE)]
    assert found == ["there is no decision 0002", "there is no decision 0003"]


def test_decisions_have_the_points_that_are_named(source):
    page = source("docs/decisions/0001-pages.md", "1. One.\n2. Two.\n")
    code = source("crates/a/src/lib.rs", "// Yes (0001, point 2).\n// (0001, point 3)\nf(0004);\n/// Never (0002).\n")
    found = [finding.text for finding in rules.missing_decisions([page, code], NONE)]
    assert found == ["decision 0001 has no point 3", "there is no decision 0002"]


def test_imports_go_one_way(source):
    test = source("tests/test_a.py", "from tools.harness.run import run\nfrom .b import x\nimport tools.bench.fio\n")
    harness = source("tools/harness/a.py", "import os\nfrom .run import run\nfrom ..bench import fio\nimport tests.b\n")
    lab = source("tools/lab/a.py", "from tools.bench import fio\nfrom .plan import load\nfrom tools import torment\n")
    found = [(finding.path, finding.line) for finding in rules.wrong_imports([test, harness, lab], NONE)]
    assert found == [
        ("tests/test_a.py", 3),
        ("tools/harness/a.py", 3),
        ("tools/harness/a.py", 4),
        ("tools/lab/a.py", 3),
    ]


def test_each_file_of_tests_is_named_where_they_are_one_program(source):
    sources = [
        source("crates/a/tests/main.rs", "mod one;\nmod support;\n"),
        source("crates/a/tests/one.rs", ""),
        source("crates/a/tests/two.rs", ""),
        source("crates/a/tests/alone.rs", ""),
        source("crates/a/Cargo.toml", '[[test]]\nname = "alone"\npath = "tests/alone.rs"\n'),
        source("crates/a/tests/support/mod.rs", ""),
        source("crates/b/tests/three.rs", ""),
    ]
    assert [finding.path for finding in rules.tests_left_out(sources, NONE)] == ["crates/a/tests/two.rs"]


def test_an_archive_without_git_has_its_files_too(source, tmp_path):
    source("crates/a/src/lib.rs", "")
    source("target/debug/a.rs", "")
    assert tracked(tmp_path) == ["crates/a/src/lib.rs"]
    assert list(rules.commit_titles(tmp_path)) == []


def test_commit_titles_since_the_rule(tmp_path):
    def commit(title, path):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(title)
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
        subprocess.run(["git", "-C", tmp_path, *name, "commit", "-qm", title], check=True)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit("x" * 80, "a")
    assert list(rules.commit_titles(tmp_path)) == []
    commit("Tidy", "tools/tidy/rules.py")
    commit("y" * 72, "b")
    commit("z" * 73, "c")
    found = [finding.text for finding in rules.commit_titles(tmp_path)]
    assert found == [f"73 characters, 72 at most: {'z' * 73}"]
