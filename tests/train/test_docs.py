"""docs/training.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from calgrad.train import Record, describe_fields

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_table_of_fields_is_the_recipes():
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert dict(rows) == describe_fields()


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    exec(code, {})
    assert Record.load("runs/digits/bsce-gra-gamma2/seed-1").status == "finished"
    assert "val_accuracy" in capsys.readouterr().out
