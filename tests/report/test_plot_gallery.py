"""The gallery shows the code that made it, and the code still runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "figures" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gallery"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gallery"]


def test_the_page_holds_every_picture_with_its_code(gallery):
    text = (DOCS / "gallery.md").read_text()
    assert len(gallery.PICTURES) == 12
    for picture in gallery.PICTURES:
        assert gallery.section(picture) in text, f"run docs/figures/gallery.py: {picture.__name__} has changed"
        for suffix in (".png", ".svg"):
            assert (DOCS / "img" / f"gallery_{picture.__name__}{suffix}").stat().st_size > 5000


@pytest.mark.parametrize("name", ["reliability", "equal_mass", "before_after", "risk_coverage", "link"])
def test_the_code_runs(gallery, name):
    picture = getattr(gallery, name)
    make = gallery.focused if name == "before_after" else gallery.shouting
    figure = picture(make(500, 0), make(300, 1), None)
    assert figure.axes
