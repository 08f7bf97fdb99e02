"""`calgrad losses`, `calgrad calibrators` and `calgrad doctor`."""

from __future__ import annotations

import json
import platform

import pytest
import torch

from calgrad import __version__
from calgrad.cli import doctor as command
from calgrad.cli.app import run
from calgrad.losses import LOSSES
from calgrad.posthoc import CALIBRATORS


@pytest.mark.parametrize(("name", "entries"), [("losses", LOSSES), ("calibrators", CALIBRATORS)])
def test_every_entry_is_listed_with_its_formula(capsys, name, entries):
    assert run([name, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["formula"], row["summary"]) for row in rows] == [
        (entry.name, entry.formula, entry.summary) for entry in entries.values()
    ]
    assert all(row["formula"] and isinstance(row["defaults"], dict) for row in rows)
    assert run([name]) == 0
    shown = capsys.readouterr().out
    assert all(entry in shown for entry in entries)


def test_the_paper_s_formula_is_shown_with_its_brackets(capsys):
    assert run(["losses"]) == 0
    assert "[||p - e_y||_beta^gamma] CE" in capsys.readouterr().out


def test_doctor_says_what_is_here(capsys):
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calgrad"]["version"] == __version__
    assert found["system"]["python"] == platform.python_version()
    assert found["packages"]["torch"] == torch.__version__
    assert str(torch.get_num_threads()) in found["devices"]["cpu"]
    assert set(found["extras"]) == set(command.EXTRAS)


def test_doctor_names_the_extras_that_are_missing(capsys, monkeypatch):
    monkeypatch.setattr(command, "_version", lambda package: None if package in ("pyarrow", "timm") else "1.0")
    assert run(["doctor"]) == 0
    assert "pip install 'calgrad[parquet,timm]'" in capsys.readouterr().out


def test_doctor_shows_the_devices(monkeypatch, capsys):
    class Properties:
        name, total_memory = "NVIDIA H200", 141 * 2**30

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: Properties)
    assert run(["doctor"]) == 0
    assert "NVIDIA H200, 141 GiB" in capsys.readouterr().out
