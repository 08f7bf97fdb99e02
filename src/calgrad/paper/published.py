"""Every number [Lin25] print, as data: `published/<table>.csv`, a row a cell, with the digits as printed.

The files hold percent, as the paper does; `read_published` returns fractions, as everything else here.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

from calgrad.checks import unknown_name

TABLES = (
    "accuracy", "ada_ece", "classwise_ece", "consistency", "ece", "exponent", "gradient_or_loss", "imagenet", "vit",
)  # fmt: skip
"""The tables that runs can fill. `toy` holds correlations and `efficiency` minutes; their own items read those."""

LOSS_TITLES = {
    "ce": "CE", "brier": "BL", "mmce-weighted": "MMCE", "flsd53": "FLSD", "dual": "DFL", "bsce": "BSCE", "focal": "FL",
    "bsce-gra": "BSCE-GRA", "flsd53-gra": "FLSD-GRA", "dual-gra": "DFL-GRA", "consistency-gra": "1 - consistency",
}  # fmt: skip
"""What the paper calls each loss."""


@dataclass(frozen=True)
class PublishedCell:
    """One printed number.

    Attributes:
        data: Data set.
        model: Network, by calgrad's name.
        loss: Loss, by calgrad's name.
        options: The loss options the paper states for this cell, as "gamma=4"; empty where it states none.
        metric: accuracy, ece, ada_ece or classwise_ece.
        view: "before" or "after" temperature scaling.
        value: As a fraction.
        text: The digits as printed, in percent.
        bold: Whether the paper prints it in bold.
    """

    data: str
    model: str
    loss: str
    options: str
    metric: str
    view: str
    value: float
    text: str
    bold: bool


def read_published(table: str) -> list[PublishedCell]:
    """The cells of one table in the paper's order.

    Example:
        >>> from calgrad.paper.published import read_published
        >>> cell = read_published("ece")[0]
        >>> cell.data, cell.model, cell.loss, cell.view, cell.text
        ('cifar10', 'resnet50', 'ce', 'before', '4.36')
    """
    if table not in TABLES:
        raise unknown_name("published table", table, TABLES)
    return [
        PublishedCell(
            row["data"], row["model"], row["loss"], row["options"], row["metric"], row["view"],
            float(row["percent"]) / 100, row["percent"], row["bold"] == "yes",
        )
        for row in read_csv(table)
    ]  # fmt: skip


def read_csv(table: str) -> list[dict[str, str]]:
    """The rows of a published file as text."""
    text = (files("calgrad.paper") / "published" / f"{table}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))
