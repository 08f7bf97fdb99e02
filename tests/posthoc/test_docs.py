"""docs/posthoc.md lists every method with its parameters, and its code runs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch

from calgrad.posthoc import CALIBRATORS, CalibrationWarning

PAGE = (Path(__file__).parents[2] / "docs" / "posthoc.md").read_text(encoding="utf-8")


def test_every_method_and_parameter_is_documented():
    table = PAGE.split("## The methods")[1].split("###")[0]
    rows = {match[1]: match[0] for match in re.finditer(r"^\| `([a-z-]+)` \|.*$", table, re.MULTILINE)}
    assert rows.keys() >= CALIBRATORS.keys()
    for name, entry in CALIBRATORS.items():
        assert all(f"`{option}`" in rows[name] for option in entry.options), name
        if name not in ("sms", "bbq"):  # "the same" as the row above
            assert all(f"`{parameter}`" in rows[name] for parameter in entry.build.shapes), name


def test_the_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(block, scope)
    assert scope["exported"].module()(torch.randn(3, 4)).shape == (3, 10)
