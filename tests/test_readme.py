"""Every block of the README runs; the two set-up commands are run by CI on a clean clone."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_first_screen_has_the_two_commands():
    setups = [block for kind, block in BLOCKS if kind == "bash" and "venv" in block]
    assert len(setups) == 2
    assert setups[0].strip().endswith("calgrad compare")
    assert "pytest" in setups[1]
    assert all("-c constraints.txt" in block for block in setups)


def test_the_python_block_runs(capsys):
    (code,) = (block for kind, block in BLOCKS if kind == "python")
    exec(code, {})
    out = capsys.readouterr().out
    assert "ECE, 15 bins" in out
    assert "noise floor" in out


@pytest.mark.slow
def test_the_four_commands_run(tmp_path):
    (block,) = (block for kind, block in BLOCKS if kind == "bash" and "calgrad report" in block)
    commands = [shlex.split(line, comments=True) for line in block.strip().splitlines()]
    assert len(commands) == 4
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for command in commands:
        assert command[0] == "calgrad"
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (tmp_path / "repaired.npz").exists()
    assert (tmp_path / "report.html").stat().st_size > 50_000


@pytest.mark.parametrize("study", ["digits", "cifar10-short"])
def test_its_numbers_are_the_committed_ones(study):
    rows = list(csv.DictReader((ROOT / "results" / study / "compare.csv").open()))
    for loss in ("ce", "flsd53", "dual", "bsce", "bsce-gra"):
        ece = next(float(r["ece"]) for r in rows if (r["loss"], r["view"]) == (loss, "as trained"))
        assert re.search(rf"^\| {loss} \|.* {100 * ece:.2f} \[", TEXT, flags=re.MULTILINE), (loss, ece)
