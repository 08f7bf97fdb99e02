"""A loss as a command line or a grid names it: `bsce-gra`, `bsce-gra:gamma=3,beta=2`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calgrad.losses import LOSSES, make_loss


@dataclass(frozen=True)
class LossChoice:
    """A loss by name with the options that differ from its defaults; `label` names it in tables and folders."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`bsce-gra`, or `bsce-gra(gamma=3,beta=2)` where options were given."""
        settings = ",".join(
            f"{k}={v:g}" if isinstance(v, (int, float)) else f"{k}={v}" for k, v in self.options.items()
        )
        return f"{self.name}({settings})" if settings else self.name

    @classmethod
    def parse(cls, text: str) -> LossChoice:
        """From a command line: `bsce-gra` or `bsce-gra:gamma=3,beta=2`."""
        from calgrad.train.recipe import parse_assignment

        name, _, rest = text.partition(":")
        choice = cls(name, dict(parse_assignment(part) for part in rest.split(",") if part))
        make_loss(choice.name, **choice.options)  # an unknown name or option is refused before anything is trained
        return choice


def settings_of(choice: LossChoice, grid: Mapping[str, Sequence[float]]) -> list[LossChoice]:
    """The settings of `grid` that this loss has and that were not fixed already; itself where there are none."""
    free = [name for name in grid if name in LOSSES[choice.name].defaults and name not in choice.options]
    free = [name for name in free if len(grid[name]) > 1 or "gamma" in free]
    if not free:
        return [choice]
    return [
        LossChoice(choice.name, {**choice.options, **dict(zip(free, values, strict=True))})
        for values in itertools.product(*(grid[name] for name in free))
    ]
