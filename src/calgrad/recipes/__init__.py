"""The recipes that ship with calgrad: one short YAML file each, `load_recipe("digits")`."""

from __future__ import annotations

from pathlib import Path

from calgrad.checks import FileError, unknown_name
from calgrad.train.recipe import Recipe

__all__ = ["list_recipes", "load_recipe", "recipe_header", "recipe_path"]

_HOME = Path(__file__).parent


def list_recipes() -> list[str]:
    """The names of the shipped recipes."""
    return sorted(path.stem for path in _HOME.glob("*.yaml"))


def recipe_path(name: str | Path) -> Path:
    """The file of a shipped recipe, or a YAML file of one's own."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise FileError(f"the recipe {path} does not exist; shipped ones go by name: {', '.join(list_recipes())}")
        return path
    if str(name) not in list_recipes():
        raise unknown_name("recipe", str(name), list_recipes())
    return _HOME / f"{name}.yaml"


def load_recipe(name: str | Path) -> Recipe:
    """A shipped recipe by name, or any YAML file by path.

    >>> load_recipe("cifar10-paper").clip
    2.0
    """
    return Recipe.load(recipe_path(name))


def recipe_header(name: str | Path) -> str:
    """The comment a recipe opens with: what it reproduces, the command, the time it takes, the number reached."""
    lines = recipe_path(name).read_text().splitlines()
    header = []
    for line in lines:
        if not line.startswith("#"):
            break
        header.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(header)
