"""A grid: losses x models x data sets x seeds x hyperparameters, as a short YAML file or a few flags.

    recipe: digits                       # or a list: one grid for each
    set: {epochs: 5}                     # fields that every run has
    vary: {model: [mlp, cnn], lr: [0.05, 0.1]}        # fields that take each of several values
    losses: [ce, "focal:gamma=2", {loss: bsce-gra, gamma: [1, 2], beta: 2}]
    seeds: [1, 2, 3]                     # by default the recipe's
    parts: [...]                         # grids that inherit all of the above and change what they name

A grid becomes a list of runs, seeds outermost, so that a first seed of everything is ready early. Everything is checked
before anything is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calgrad.checks import FileError, InputError, unknown_name
from calgrad.files import read_yaml
from calgrad.losses import make_loss
from calgrad.recipes import load_recipe
from calgrad.sweep.choice import LossChoice
from calgrad.sweep.run import Run, run_folder

_HOME = Path(__file__).parent / "grids"
KEYS = ("recipe", "set", "vary", "losses", "seeds", "parts")
PLACED = frozenset({"data", "model", "epochs"})
"""Fields that a run's folder names anyhow."""


@dataclass(frozen=True)
class Grid:
    """What to vary over which recipe; the fields are the keys of the YAML file.

    >>> grid = Grid(recipe=("digits",), vary={"lr": [0.05, 0.1]}, losses=(LossChoice("ce"),), seeds=(1, 2))
    >>> len(grid.runs(Path("runs")))
    4
    """

    recipe: tuple[str, ...] = ()
    set: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, list[Any]] = field(default_factory=dict)
    losses: tuple[LossChoice, ...] = ()
    seeds: tuple[int, ...] = ()
    parts: tuple[Grid, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], above: Grid | None = None) -> Grid:
        """From the content of a YAML file; a part takes what it does not name from the grid `above`."""
        above = above or cls()
        for key in values:
            if key not in KEYS:
                raise unknown_name("key of a grid", str(key), KEYS)
        own = cls(
            recipe=tuple(map(str, _list(values["recipe"]))) if "recipe" in values else above.recipe,
            set={**above.set, **_mapping("set", values.get("set", {}))},
            vary={**above.vary, **{k: _list(v) for k, v in _mapping("vary", values.get("vary", {})).items()}},
            losses=tuple(itertools.chain.from_iterable(map(_losses, _list(values["losses"]))))
            if "losses" in values
            else above.losses,
            seeds=_seeds(values["seeds"]) if "seeds" in values else above.seeds,
        )
        parts = [cls.from_dict(_mapping("parts", part), own) for part in _list(values.get("parts", []))]
        return cls(own.recipe, own.set, own.vary, own.losses, own.seeds, tuple(parts))

    def changed(self, values: Mapping[str, Any]) -> Grid:
        """With the keys of `values` in place of the grid's own, in its parts too: what flags do to a file."""
        own = Grid.from_dict(values, self)
        parts = tuple(part.changed({k: v for k, v in values.items() if k != "parts"}) for part in self.parts)
        return Grid(own.recipe, own.set, own.vary, own.losses, own.seeds, own.parts or parts)

    def runs(self, folder: Path) -> list[Run]:
        """Every run, finished or not, with its place below `folder`; each one once."""
        found = list(self._runs(folder))
        if not found:
            raise InputError("the grid names no run: it needs a recipe, e.g. `recipe: digits`")
        unique = {run.folder: run for run in found}
        for run in found:
            if unique[run.folder].recipe != run.recipe:
                raise InputError(f"two different runs of the grid would share {run.folder}; give their recipes names")
        order = {seed: i for i, seed in enumerate(dict.fromkeys(run.seed for run in found))}
        return sorted(unique.values(), key=lambda run: order[run.seed])  # stable: all else as written

    def _runs(self, folder: Path) -> Iterator[Run]:
        if self.parts:
            for part in self.parts:
                yield from part._runs(folder)
            return
        for name in self.recipe:
            base = load_recipe(name)
            for values in itertools.product(*self.vary.values()):
                varied = dict(zip(self.vary, values, strict=True))
                recipe = base.replace(**{**self.set, **varied})
                rest = {k: v for k, v in varied.items() if k not in PLACED}
                choices = self.losses or (LossChoice(recipe.loss, recipe.loss_options),)
                for seed, choice in itertools.product(self.seeds or recipe.seeds, choices):
                    own = recipe.replace(loss=choice.name, loss_options=dict(choice.options))
                    yield Run(own, seed, run_folder(folder, own, seed, rest))


def list_grids() -> list[str]:
    """The names of the shipped grids."""
    return sorted(path.stem for path in _HOME.glob("*.yaml"))


def load_grid(name: str | Path) -> Grid:
    """A shipped grid by name, or any YAML file by path.

    >>> len(load_grid("paper-table1").runs(Path("runs")))
    189
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if str(name) not in list_grids():
            raise unknown_name("grid", str(name), list_grids())
        path = _HOME / f"{name}.yaml"
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read the grid {path}: {getattr(error, 'strerror', None) or error}") from error
    values = read_yaml(text, str(path))
    try:
        return Grid.from_dict(_mapping("grid", values))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _losses(entry: Any) -> list[LossChoice]:
    """`ce`, `focal:gamma=2`, or {loss: bsce-gra, gamma: [1, 2]}: every combination of the listed options."""
    if isinstance(entry, str):
        return [LossChoice.parse(entry)]
    options = dict(_mapping("losses", entry))
    name = options.pop("loss", None)
    if not isinstance(name, str):
        raise InputError(f"a loss with options is written {{loss: bsce-gra, gamma: [1, 2]}}, got {entry!r}")
    found = [
        LossChoice(name, dict(zip(options, values, strict=True)))
        for values in itertools.product(*(_list(v) for v in options.values()))
    ]
    for choice in found:
        make_loss(choice.name, **choice.options)
    return found


def _seeds(value: Any) -> tuple[int, ...]:
    seeds = _list(value)
    if not seeds or any(type(seed) is not int for seed in seeds):
        raise InputError(f"`seeds` must be whole numbers, such as [1, 2, 3], got {value!r}")
    return tuple(seeds)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"`{key}` must be a mapping such as {{epochs: 5}}, got {value!r}")
    return value
