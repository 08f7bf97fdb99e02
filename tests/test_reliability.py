"""docs/reliability.md names tests; they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|tools|benchmarks)/[\w/]+\.py(?:::\w+)?)", PAGE)))


def test_the_page_names_many():
    assert len(NAMED) > 25
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert [row for row in rows if "`tests/" not in row] == []  # every promise has its test


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_exists(name):
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not function or function in functions
