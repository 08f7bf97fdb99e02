"""Every example in a docstring of the metrics runs and says what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import calgrad.metrics

MODULES = [f"calgrad.metrics.{info.name}" for info in pkgutil.iter_modules(calgrad.metrics.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) >= 10
