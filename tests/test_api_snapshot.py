"""The public names, as committed in api_snapshot.json: none disappears, none appears, by accident.

After a change that is meant, write the file anew and say so in the changelog:

    python tests/test_api_snapshot.py
"""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

SNAPSHOT = Path(__file__).with_name("api_snapshot.json")
SOURCE = Path(__file__).parents[1] / "src" / "calgrad"
TABLES = {"losses": "LOSSES", "calibrators": "CALIBRATORS", "models": "MODELS"}


def public_names() -> dict[str, list[str]]:
    """What every package lists in its __all__, and the names that the tables know."""
    import calgrad

    found = {"calgrad": sorted(calgrad.__all__)}
    for init in sorted(SOURCE.glob("*/__init__.py")):
        package = importlib.import_module(f"calgrad.{init.parent.name}")
        if hasattr(package, "__all__"):
            found[package.__name__] = sorted(package.__all__)
    for kind, table in TABLES.items():
        found[f"names of {kind}"] = sorted(getattr(calgrad, table))
    return found


def test_public_names_are_those_of_the_snapshot():
    committed = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    found = public_names()
    gone = {home: sorted(set(names) - set(found.get(home, []))) for home, names in committed.items()}
    new = {home: sorted(set(names) - set(committed.get(home, []))) for home, names in found.items()}
    assert {home: names for home, names in gone.items() if names} == {}, "deprecate for one minor version: docs/api.md"
    assert {home: names for home, names in new.items() if names} == {}, "meant? python tests/test_api_snapshot.py"


def test_every_listed_name_exists_and_is_documented():
    for home, names in public_names().items():
        if home.startswith("names of"):
            continue
        module = importlib.import_module(home)
        for name in names:
            value = getattr(module, name)
            if callable(value):
                assert value.__doc__, f"{home}.{name} has no docstring"


def test_every_file_is_valid_in_every_python_we_claim():
    for path in sorted(SOURCE.rglob("*.py")):
        for minor in (11, 12, 13):
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, minor))


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(public_names(), indent=1) + "\n", encoding="utf-8")
