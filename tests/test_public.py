"""The public names: all there, lazily loaded, and none that a submodule would hide."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import calgrad


@pytest.mark.parametrize("name", calgrad.__all__)
def test_every_public_name_exists(name):
    assert getattr(calgrad, name) is not None
    assert name in dir(calgrad)


def test_a_public_name_is_not_also_a_submodule():
    folder = Path(calgrad.__file__).parent
    submodules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not submodules & set(calgrad.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'loses'"):
        _ = calgrad.loses


def test_lazy_table_and_type_checkers_imports_agree():
    text = Path(calgrad.__file__).read_text()
    block = text[text.index("if TYPE_CHECKING") : text.index("_HOME")]
    listed = {}
    for module, names in re.findall(r"from (calgrad\.\w+) import \(?([^)\n]*(?:\n\s+\w+,)*)", block):
        listed[module] = sorted(n.strip() for n in names.replace("\n", " ").split(",") if n.strip())
    assert listed == {module: sorted(names) for module, names in calgrad._HOME.items()}


def test_version_is_the_same_everywhere():
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert f"version: {calgrad.__version__}\n" in citation
    assert importlib.import_module("calgrad._version").__version__ == calgrad.__version__
