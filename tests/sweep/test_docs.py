"""Every command and every grid that docs/sweeps.md shows works."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import yaml

from calgrad.cli.app import run
from calgrad.sweep.grid import Grid

TEXT = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.S) for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        program, command, *words = shlex.split(line)
        assert program == "calgrad"
        if command == "search" and importlib.util.find_spec("optuna") is None:
            continue
        assert run([command, *words]) == 0, line
        assert capsys.readouterr().out.strip(), line


def test_the_grid():
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    assert len(Grid.from_dict(yaml.safe_load(text)).runs(Path("runs"))) == 2 * 2 * 4 * 3
