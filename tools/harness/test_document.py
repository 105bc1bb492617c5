"""Measured parts of a document are replaced where they stand, and nothing else is."""

import pytest

from .document import commit, replace_part, set_figures

TEXT = """\
| what | goal | figure (commit, day) |
|---|---|---|
| reads | 0.9 | <!-- reads --> 0.80 (abc, 2000-01-01) |
| reads of much | 1.0 | <!-- reads_4M --> not measured |

<!-- all: begin -->
old
<!-- all: end -->
"""


@pytest.fixture
def document(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(TEXT)
    return file


def test_figures_stand_in_their_cells(document):
    set_figures(document, {"reads": "0.91"})
    line, other = document.read_text().splitlines()[2:4]
    assert line.startswith(f"| reads | 0.9 | <!-- reads --> 0.91 ({commit()}, 2") and line.endswith(") |")
    assert other == TEXT.splitlines()[3]


def test_a_figure_without_a_cell_is_an_error(document):
    with pytest.raises(ValueError, match="0 cells named writes"):
        set_figures(document, {"reads": "1", "writes": "2"})
    assert document.read_text() == TEXT


def test_parts_stand_between_their_markers(document):
    replace_part(document, "all", "new")
    assert document.read_text() == TEXT.replace("old", "new")
