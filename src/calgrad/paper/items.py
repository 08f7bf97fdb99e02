"""Everything the paper shows, as a list: where it stands in the paper, its state here, the command and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calgrad.paper.tables import Backing
from calgrad.report.tables import Cell, Table

HERE = "reproduced here"
RUNS = "runs; needs GPU hours"
DATA = "runs; needs data and GPU hours"
BEYOND = "beyond the paper"


@dataclass(frozen=True)
class Item:
    """One table, figure or claim.

    Attributes:
        name: The subcommand of `calgrad paper`.
        where: In the paper.
        what: In a line.
        state: `HERE`, `RUNS`, `DATA` or `BEYOND`.
        cost: Of everything in it, at full length.
    """

    name: str
    where: str
    what: str
    state: str
    cost: str

    @property
    def command(self) -> str:
        """What to type."""
        return f"calgrad paper {self.name}"


_TABLE_1_COST = "189 runs, about 93 h on one H200"

ITEMS: tuple[Item, ...] = (
    Item(
        "theory", "Eq. (12), appendix", "the constant gap; the minimum with y and with eta; the link", HERE, "10 s, CPU"
    ),
    Item("toy", "section 4.3", "correlation of each weight with the true error", HERE, "1 min, CPU (30 runs: 4 min)"),
    Item("fig-focal-gradient", "Figure 1", "g(p, gamma) of focal loss and its turning point p0", HERE, "1 s, CPU"),
    Item("fig-weights", "Figure 2", "the weights over the simplex of four classes", HERE, "2 s, CPU"),
    Item("fig-ece-bars", "Figure 3", "ECE, AdaECE, classwise ECE of all losses", RUNS, "table-ece's runs"),
    Item("fig-gradient-vs-brier", "Figure 4", "gradient norm against Brier score over training", RUNS, "3 runs, 0.8 h"),
    Item("fig-ece-over-epochs", "Figure 5, left", "ECE over training, smoothed", RUNS, "the same 3 runs"),
    Item("fig-gradient-density", "Figure 5, right", "density of the gradient norms", RUNS, "the same 3 runs"),
    Item(
        "fig-confidence", "appendix, Figures 6, 7", "right and wrong by confidence over training", RUNS, "4 runs, 1 h"
    ),
    Item("fig-gamma-beta", "appendix, Figure 8", "ECE and error over gamma and beta", RUNS, "15 min a setting, H200"),
    Item("table-ece", "Table 1", "ECE, 9 networks x 7 losses, before and after T", RUNS, _TABLE_1_COST),
    Item("table-accuracy", "appendix", "accuracy of the same runs", RUNS, "table-ece's runs"),
    Item("table-adaece", "appendix", "AdaECE of the same runs", RUNS, "table-ece's runs"),
    Item("table-classwise", "appendix", "classwise ECE of the same runs", RUNS, "table-ece's runs"),
    Item(
        "table-gradient-or-loss",
        "Table 2",
        "weights on the loss or on the gradient",
        RUNS,
        "18 runs, 4.4 h on one H200",
    ),
    Item("table-exponent", "appendix", "the exponent of BSCE-GRA on CIFAR-100", DATA, "18 runs, 4.4 h on one H200"),
    Item("table-vit", "appendix", "a fine-tuned ViT on CIFAR-10", DATA, "9 runs; needs the pretrained weights"),
    Item("table-imagenet", "appendix", "a fine-tuned ResNet-50 on ImageNet", DATA, "9 runs, about 50 h on one H200"),
    Item("table-consistency", "appendix", "1 - consistency as the weight", RUNS, "3 runs, 0.7 h on one H200"),
    Item("table-efficiency", "appendix", "the cost of BSCE-GRA over CE", RUNS, "2 runs, 0.5 h on one H200"),
    Item("human", "appendix", "distance of predictions to human answers (CIFAR-10H)", BEYOND, "seconds, CPU"),
    Item("findings", "-", "noise floor, DFL-GRA, beta = 1, CIFAR-100's normalisation", BEYOND, "1 s, CPU"),
)


def items_table(items: Sequence[Item] = ITEMS, *, found: Mapping[str, Backing] | None = None) -> Table:
    """The list; `found` says for a table how many of its published cells runs here back."""
    table = Table(
        "What [Lin25] show, and what of it is here", ["calgrad paper", "in the paper", "what", "state", "full cost"]
    )
    lines = []
    for item in items:
        state = item.state
        cells = (found or {}).get(item.name)
        if cells is not None and cells.full + cells.short:
            short = f" and {cells.short} shortened" if cells.short else ""
            state = HERE if cells.full == cells.total else f"{cells.full}{short} of {cells.total} cells run; {state}"
        lines.append([Cell(text) for text in (item.name, item.where, item.what, state, item.cost)])
    table.sections.append(("", lines))
    return table
