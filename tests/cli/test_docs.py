"""Every command and every piece of Python that docs/cli.md and docs/predictions.md show is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from calgrad.cli.app import run

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.S)


def test_the_commands_of_the_command_line_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("cli.md", "bash") for line in block.splitlines()]
    assert len(lines) > 12
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "calgrad"
        assert run(arguments) == 0, line
        assert capsys.readouterr().out.strip(), line


def test_the_python_of_the_predictions_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks("predictions.md", "python"):
        exec(compile(block, "predictions.md", "exec"), {})
    assert "1000" in capsys.readouterr().out
    assert (tmp_path / "from_numpy.npz").exists()


def test_the_table_of_the_predictions_page(tmp_path):
    from calgrad import Predictions

    (tmp_path / "p.csv").write_text(blocks("predictions.md", "csv")[0])
    found = Predictions.load(tmp_path / "p.csv")
    assert (found.n, found.classes, found.ids.tolist()) == (2, 3, ["img-001", "img-002"])


def test_the_output_shown_is_the_output(capsys):
    shown = blocks("cli.md", "text")[0].split("...\n")
    assert run(["evaluate", "example"]) == 0
    printed = capsys.readouterr().out
    for part in shown:
        assert part.strip() in printed
