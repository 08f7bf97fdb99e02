"""What the figures share: their sizes in print, one look a loss, and "data first, drawing second" as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calgrad.checks import InputError
from calgrad.paper.runs import Row, write_csv
from calgrad.report.style import COLOURS, MARKERS, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 3.4
"""Inches of one column of a two-column page. Figures are drawn at the size they are printed, so 10 pt text is 10 pt."""
PAGE = 7.0
"""Inches of both columns."""

_LOOKED_AT = ["ce", "focal", "bsce-gra", "dual", "bsce", "flsd53", "brier", "mmce-weighted"]
_LINES = ["-", "--", "-.", ":"]


def looks(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each `label` in rows, by its `loss`: the same in every figure where that is free."""
    losses = {label: column(rows, "loss", label=label)[0] for label in distinct(rows, "label")}
    taken: dict[str, int] = {}
    for label, loss in losses.items():
        if loss in _LOOKED_AT and _LOOKED_AT.index(loss) not in taken.values():
            taken[label] = _LOOKED_AT.index(loss)
    for label in losses:
        free = [i for i in range(len(COLOURS)) if i not in taken.values()]
        taken.setdefault(label, free[0] if free else 0)
    return {
        label: {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": _LINES[i % len(_LINES)]}
        for label, i in taken.items()
    }


def line_look(look: dict[str, Any]) -> dict[str, Any]:
    """A look without its marker, for curves of many points."""
    return {"color": look["color"], "linestyle": look["linestyle"]}


def write_figure(
    name: str, rows: Sequence[Row], draw: Callable[[Sequence[Row]], Figure], *, data: Path, pictures: Path
) -> list[Path]:
    """Save the rows as `data/<name>.csv`, draw them, and save `pictures/paper_<name>.png` and `.svg`."""
    if not rows:
        raise InputError(f"nothing to draw for {name}: no rows")
    stem = name.removeprefix("fig-").replace("-", "_")
    table = write_csv(data / f"{stem}.csv", rows)
    pictures.mkdir(parents=True, exist_ok=True)
    return [table, *save(draw(rows), pictures / f"paper_{stem}")]


def column(rows: Sequence[Row], name: str, **where: Any) -> list[Any]:
    """The values of a column in the rows that agree with `where`."""
    return [row[name] for row in rows if all(row[k] == v for k, v in where.items())]


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """The different values of a column in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows))
