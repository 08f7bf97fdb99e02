"""[Lin25] appendix, "Computation efficiency": what BSCE-GRA costs over cross-entropy.

The paper: 128 minutes for CE and 139 for BSCE-GRA, ResNet-50 on CIFAR-10, one RTX 4090: 1.086 times. Here the ratio
is taken between runs of one recipe on one machine, by the speed of their steps, so that compiling and waiting do
not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from calgrad.paper.published import LOSS_TITLES, read_csv
from calgrad.paper.records import RunRow
from calgrad.report.tables import Cell, Table


def efficiency_table(rows: Sequence[RunRow], *, baseline: str = "ce") -> Table:
    """One section the paper's, then one for each recipe and machine with runs of the baseline and of other losses."""
    printed = read_csv("efficiency")
    table = Table("[Lin25] appendix: the cost of a loss", ["loss", "minutes", "images/s", "against CE", "n"])
    first = float(printed[0]["minutes"])
    lines = [
        [
            Cell(LOSS_TITLES[r["loss"]]),
            Cell(r["minutes"]),
            Cell("–"),
            Cell(f"{float(r['minutes']) / first:.3f}"),
            Cell("–"),
        ]
        for r in printed
    ]
    table.sections.append(("published: cifar10, resnet50, 350 epochs, RTX 4090", lines))
    for setting in dict.fromkeys(map(_setting, rows)):
        here = [row for row in rows if _setting(row) == setting]
        speeds = {loss: [r.values["images_per_second"] for r in here if r.run.loss == loss] for loss in _losses(here)}
        if baseline not in speeds or len(speeds) < 2:
            continue
        reference = statistics.fmean(speeds[baseline])
        lines = []
        for loss, values in speeds.items():
            minutes = statistics.fmean(r.values["minutes"] for r in here if r.run.loss == loss)
            speed = statistics.fmean(values)
            texts = (loss, f"{minutes:.1f}", f"{speed:,.0f}", f"{reference / speed:.3f}", str(len(values)))
            lines.append([Cell(text) for text in texts])
        data, model, recipe, length, _, machine = setting
        table.sections.append((f"ours: {data}, {model}, {recipe}, {length}, {machine}", lines))
    table.caption = "Time of a step relative to cross-entropy's; runs that shared a machine with others say little."
    return table


def _setting(row: RunRow) -> tuple[str, ...]:
    run = row.run
    return run.data, run.model, run.recipe, run.length, run.settings, row.machine


def _losses(rows: Sequence[RunRow]) -> list[str]:
    return list(dict.fromkeys(r.run.loss for r in rows if "images_per_second" in r.values))
