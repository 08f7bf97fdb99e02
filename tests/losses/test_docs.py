"""What docs/losses.md and docs/link.md say: their code runs, their tables are the table, their references exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calgrad.losses import LOSSES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["losses.md", "link.md"])
def test_the_code_runs(page, capsys):
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, names)
    for promised in re.findall(r"print\(.*\)\s+# (.*)", "".join(blocks)):
        assert promised in capsys.readouterr().out


def test_the_tables_list_every_loss_with_its_defaults():
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \|(.*)$", (DOCS / "losses.md").read_text(), flags=re.MULTILINE))
    assert sorted(rows) == sorted(LOSSES)
    for name, entry in LOSSES.items():
        for value in entry.defaults.values():
            if isinstance(value, (int, float)):
                assert f"{value:g}" in rows[name], (name, value)


def test_every_reference_and_deviation_is_written_down():
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for entry in LOSSES.values():
        assert f'<a id="{entry.reference}"></a>' in pages, entry.reference
    for path in (Path(__file__).parents[2] / "src" / "calgrad" / "losses").glob("*.py"):
        for anchor in re.findall(r"docs/deviations\.md#([a-z0-9-]+)", path.read_text()):
            assert f'<a id="{anchor}"></a>' in pages, anchor
