"""The paper's tables, filled by runs: ours beside the published number, "no run" where nothing backs a cell.

All of the paper's tables of results are one thing: for a data set, a network and a metric, a number a loss, before
and after temperature scaling. So each is an entry of `SPECS`, and `build_table` makes any of them. A shortened run
has a line of its own that says how short it is; it is never averaged with a full one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from calgrad.checks import InputError
from calgrad.paper.published import LOSS_TITLES, PublishedCell, read_published
from calgrad.paper.records import RunRow, grouped, pool_rows
from calgrad.paper.runs import RunId
from calgrad.report.tables import Cell, Table

METRIC_TITLES = {"accuracy": "accuracy", "ece": "ECE", "ada_ece": "AdaECE", "classwise_ece": "classwise ECE"}
NO_RUN = "no run"
NOT_PUBLISHED = "–"


@dataclass(frozen=True)
class TableSpec:
    """One of the paper's tables: its published file and its title."""

    published: str
    title: str


SPECS: dict[str, TableSpec] = {
    "table-ece": TableSpec("ece", "[Lin25] Table 1: ECE (%), 15 bins"),
    "table-accuracy": TableSpec("accuracy", "[Lin25] appendix: accuracy (%)"),
    "table-adaece": TableSpec("ada_ece", "[Lin25] appendix: AdaECE (%)"),
    "table-classwise": TableSpec("classwise_ece", "[Lin25] appendix: classwise ECE (%)"),
    "table-gradient-or-loss": TableSpec(
        "gradient_or_loss", "[Lin25] Table 2: the weight on the loss or on the gradient (%)"
    ),
    "table-exponent": TableSpec("exponent", "[Lin25] appendix: the exponent of BSCE-GRA, ECE (%)"),
    "table-vit": TableSpec("vit", "[Lin25] appendix: a fine-tuned ViT, ECE (%)"),
    "table-imagenet": TableSpec("imagenet", "[Lin25] appendix: ImageNet, ECE (%)"),
    "table-consistency": TableSpec("consistency", "[Lin25] appendix: 1 - consistency as the weight (%)"),
}

COLUMNS = ["loss", "published", "ours [95 %]", "published after T", "ours after T [95 %]", "T", "n", "runs"]


@dataclass(frozen=True)
class Backing:
    """How many of a table's published cells have a run of the paper's length, how many a shorter one only, of how many."""

    full: int
    short: int
    total: int


def build_table(name: str, rows: Sequence[RunRow], *, cells: Sequence[str] = ()) -> Table:
    """The table `name` (a key of `SPECS`) with what `rows` back.

    Args:
        name: Which table.
        rows: From `read_rows`.
        cells: Only these, as "cifar10/resnet50" or "cifar10"; all by default.
    """
    spec = SPECS[name]
    published = select_cells(read_published(spec.published), cells)
    table = Table(spec.title, COLUMNS)
    for data, model, metric in dict.fromkeys((c.data, c.model, c.metric) for c in published):
        printed = [c for c in published if (c.data, c.model, c.metric) == (data, model, metric)]
        here = [row for row in rows if (row.run.data, row.run.model) == (data, model)]
        table.sections.append((f"{data}, {model}: {METRIC_TITLES[metric]}", _lines(printed, here, metric)))
    found = backing(published, rows)
    table.caption = (
        f"Of {found.total} published cells {found.full} are backed by a run of the paper's length and {found.short} by a "
        f"shorter one only; the others say {NO_RUN!r}. Intervals are over seeds and test samples. Runs shorter than the "
        "paper's are labelled and never mixed with full ones."
    )
    return table


def backing(published: Sequence[PublishedCell], rows: Sequence[RunRow]) -> Backing:
    """Which part of the published cells the runs back; a cell is a data set, a network and a loss."""
    wanted = dict.fromkeys((c.data, c.model, c.loss, c.options) for c in published)
    full = short = 0
    for data, model, loss, options in wanted:
        runs = [
            r.run
            for r in rows
            if (r.run.data, r.run.model, r.run.loss) == (data, model, loss) and _has(r.run.options, options)
        ]
        is_full = any(run.epochs == run.published_epochs for run in runs)
        full, short = full + is_full, short + (bool(runs) and not is_full)
    return Backing(full, short, len(wanted))


def select_cells(published: Sequence[PublishedCell], cells: Iterable[str]) -> list[PublishedCell]:
    """The published cells at the places named as "data/model" or "data"; all where none is named."""
    wanted = list(cells)
    places = {f"{c.data}/{c.model}" for c in published} | {c.data for c in published}
    for place in wanted:
        if place not in places:
            raise InputError(
                f"no cell {place!r} in this table; it has {', '.join(sorted(p for p in places if '/' in p))}"
            )
    return [c for c in published if not wanted or f"{c.data}/{c.model}" in wanted or c.data in wanted]


def _lines(printed: list[PublishedCell], rows: list[RunRow], metric: str) -> list[list[Cell]]:
    """The lines of one place and metric: the paper's losses, then those that were run here alone."""
    lines: list[list[Cell]] = []
    groups = grouped(rows)
    for loss, options in dict.fromkeys((c.loss, c.options) for c in printed):
        cell = {c.view: c for c in printed if (c.loss, c.options) == (loss, options)}
        ours = {run: members for run, members in groups.items() if run.loss == loss and _has(run.options, options)}
        title = LOSS_TITLES[loss] + (f" ({options})" if options else "")
        lines += [_line(title, cell, run, members, metric) for run, members in ours.items()]
        if not ours:
            lines.append(_line(title, cell, None, [], metric))
    # A loss that the paper has no number for, run under the same conditions, is worth a line too.
    others = {run: members for run, members in groups.items() if run.loss not in {c.loss for c in printed}}
    return lines + [_line(run.loss, {}, run, members, metric) for run, members in others.items()]


def _line(
    title: str, cell: dict[str, PublishedCell], run: RunId | None, members: list[RunRow], metric: str
) -> list[Cell]:
    def printed(view: str) -> Cell:
        return Cell(cell[view].text, bold=cell[view].bold) if view in cell else Cell(NOT_PUBLISHED)

    after = metric if metric == "accuracy" else f"{metric}_after_T"
    if run is None:
        return [
            Cell(title),
            printed("before"),
            Cell(NO_RUN),
            printed("after"),
            Cell(NO_RUN),
            Cell(""),
            Cell(""),
            Cell(""),
        ]
    temperature = fmean(row.values["temperature"] for row in members)
    about = f"{run.recipe}, {run.length}" + (f", {run.options}" if run.options else "")
    return [
        Cell(title),
        printed("before"),
        Cell(_interval(members, metric)),
        printed("after"),
        Cell(_interval(members, after)),
        Cell(f"{temperature:.2f}"),
        Cell(str(len(members))),
        Cell(about),
    ]


def _interval(members: list[RunRow], column: str) -> str:
    pooled = pool_rows(members, column)
    return f"{100 * pooled.value:.2f} [{100 * pooled.low:.2f}, {100 * pooled.high:.2f}]"


def _has(options: str, wanted: str) -> bool:
    return set(filter(None, wanted.split(";"))) <= set(options.split(";"))
