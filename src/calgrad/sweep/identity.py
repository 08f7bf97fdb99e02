"""Which run is which: the columns by which a row of results is known.

Two runs belong together (and are averaged) only if everything but the seed agrees: data, network, loss with its
options, recipe, epochs, and `settings`, a hash of all that is left of the recipe. So a shortened run can't slip
into a full one's mean, nor a bf16 run into an fp32 one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from calgrad.train.recipe import Recipe
from calgrad.train.record import Record


@dataclass(frozen=True, order=True)
class RunKey:
    """What identifies a run among all others."""

    data: str
    model: str
    loss: str
    options: str
    recipe: str
    epochs: int
    settings: str
    seed: int

    @property
    def group(self) -> Self:
        """The same for all seeds of a repetition."""
        return replace(self, seed=0)

    @property
    def loss_label(self) -> str:
        """The loss with its options."""
        return f"{self.loss} ({self.options})" if self.options else self.loss

    @classmethod
    def of_record(cls, record: Record) -> Self:
        """The identity of a recorded run."""
        recipe = Recipe.from_dict(record.recipe)
        # What the loss is has columns of its own, and at which epochs gradients were looked at changes no number.
        rest = recipe.replace(loss="ce", loss_options={}, gradient_epochs=())
        return cls(
            data=recipe.data,
            model=recipe.model,
            loss=recipe.loss,
            options=options_text(recipe.loss, recipe.loss_options),
            recipe=recipe.name,
            epochs=recipe.epochs,
            settings=rest.fingerprint()[:8],
            seed=record.seed,
        )

    @classmethod
    def of_row(cls, row: Mapping[str, str]) -> Self:
        """The identity in a row of a CSV file."""
        values: dict[str, Any] = {f.name: row[f.name] for f in fields(cls)}
        return cls(**{**values, "epochs": int(values["epochs"]), "seed": int(values["seed"])})


def options_text(loss: str, options: Mapping[str, Any]) -> str:
    """gamma=4;beta=2: every option that shapes the loss, defaults written out, in a fixed order.

    >>> options_text("bsce-gra", {"beta": 2, "gamma": 4})
    'beta=2;gamma=4'
    """
    from calgrad.losses import LOSSES

    known = dict(LOSSES[loss].defaults) if loss in LOSSES else {}
    merged = {**known, **options}
    return ";".join(f"{k}={_plain(merged[k])}" for k in sorted(merged) if merged[k] is not None)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
