"""The published numbers: counted, summed, and read a second time from the paper's own text where that is at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calgrad.checks import InputError
from calgrad.paper.published import LOSS_TITLES, TABLES, read_csv, read_published
from tests.conftest import real_data_folder

CELLS = [
    ("cifar10", "resnet50"), ("cifar10", "resnet110"), ("cifar10", "wrn-26-10"), ("cifar10", "densenet121"),
    ("cifar100", "resnet50"), ("cifar100", "resnet110"), ("cifar100", "wrn-26-10"), ("cifar100", "densenet121"),
    ("tiny-imagenet", "resnet50"),
]  # fmt: skip
LOSSES = ["ce", "brier", "mmce-weighted", "flsd53", "dual", "bsce", "bsce-gra"]
ROW_TITLES = ["ResNet50", "ResNet110", "WideResNet", "DenseNet"]

# How many numbers a table prints and their sum in hundredths, added up from the paper by another program than the one
# that made the files; a slip in any cell changes the sum.
SUMS = {"ece": (126, 48680), "ada_ece": (126, 50627), "classwise_ece": (126, 4513), "accuracy": (63, 515765)}


@pytest.fixture(scope="module")
def paper() -> str:
    folder = real_data_folder()
    texts = sorted((folder.parent / "paper").glob("*.txt")) if folder else []
    if not texts:
        pytest.skip("the paper's text is not here")
    return Path(texts[0]).read_text()


def tabular(paper: str, label: str) -> list[str]:
    """The lines of the table that carries a label."""
    end = paper.index(label)
    start = max(paper.rindex(mark, 0, end) for mark in (r"\begin{table*}", r"\begin{table}") if mark in paper[:end])
    return paper[start:end].splitlines()


def numbers(line: str) -> list[str]:
    """What is printed in a row's cells, after the row's title; formatting removed."""
    cells = line.split(r"\\")[0].split("&")
    plain = [re.sub(r"\\textbf|[{}\\%\s]", "", cell) for cell in cells]
    return [cell for cell in plain if re.fullmatch(r"\d+(\.\d+)?", cell)]


def bold(line: str) -> list[bool]:
    cells = [
        c for c in line.split(r"\\")[0].split("&") if re.search(r"\d\.\d|\d\d", re.sub(r"\\\w+|\w*[A-Za-z]\w*", "", c))
    ]
    return ["textbf" in cell for cell in cells]


@pytest.mark.parametrize("table", ["ece", "ada_ece", "classwise_ece", "accuracy"])
def test_the_large_tables_are_complete_and_in_order(table):
    cells = read_published(table)
    views = ["before"] if table == "accuracy" else ["before", "after"]
    expected = [(d, m, loss, v) for d, m in CELLS for loss in LOSSES for v in views]
    assert [(c.data, c.model, c.loss, c.view) for c in cells] == expected
    assert {c.metric for c in cells} == {table}
    count, total = SUMS[table]
    assert len(cells) == count
    assert sum(round(100 * float(c.text)) for c in cells) == total


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ("ece", r"\label{tab: ECE results"),
        ("ada_ece", r"\label{tab: AdaECE"),
        ("classwise_ece", r"\label{tab: Classwise"),
        ("accuracy", r"\label{tab: accuracy"),
    ],
)
def test_the_large_tables_say_what_the_paper_says(paper, table, label):
    lines = [line for line in tabular(paper, label) if any(f"& {title}" in line for title in ROW_TITLES)]
    cells = read_published(table)
    assert [number for line in lines for number in numbers(line)] == [c.text for c in cells]
    assert [flag for line in lines for flag in bold(line)] == [c.bold for c in cells]


def test_gradient_or_loss_says_what_the_paper_says(paper):
    lines = tabular(paper, r"\label{tab: gradient or not")
    cells = read_published("gradient_or_loss")
    for title, metric in (("Acc", "accuracy"), ("ECE", "ece"), ("Ada ECE", "ada_ece")):
        line = next(line for line in lines if line.strip().startswith(title + " &"))
        ours = [c for c in cells if c.metric == metric]
        assert [c.text for c in ours] == numbers(line)
        names = ["flsd53", "flsd53-gra", "dual", "dual-gra", "bsce", "bsce-gra"]
        assert [(c.loss, c.view) for c in ours] == [(n, v) for n in names for v in ("before", "after")]


@pytest.mark.parametrize(
    ("table", "label"),
    [("exponent", r"\label{table: Exponent}"), ("vit", r"\label{Table: ViT}"), ("imagenet", r"\label{ImageNet}")],
)
def test_the_small_tables_say_what_the_paper_says(paper, table, label):
    line = next(line for line in tabular(paper, label) if r"\textbf{ECE}" in line)
    assert re.findall(r"\d+\.\d+", line) == [c.text for c in read_published(table)]


def test_numbers_in_the_running_text(paper):
    assert {r["score"]: r["pearson"] for r in read_csv("toy")} == {
        "brier-norm": "0.664",
        "dual": "0.638",
        "true-class": "0.550",
    }
    assert re.search(r"gBS achieves .* of 0\.664", paper)
    assert re.search(r"DFL follows with a correlation of 0\.638, while FL has the lowest correlation at 0\.550", paper)
    minutes = {r["loss"]: r["minutes"] for r in read_csv("efficiency")}
    assert f"CE and BSCE-GRA are {minutes['ce']} and {minutes['bsce-gra']} mins" in paper
    ece, accuracy = (c.text for c in read_published("consistency"))
    assert re.search(rf"an ECE of {ece} and an accuracy of {accuracy}", paper)


def test_tables_that_repeat_a_number_agree():
    """Table 2 repeats Table 1's row of CIFAR-10 with ResNet-50."""
    for cell in read_published("gradient_or_loss"):
        whole = {(c.data, c.model, c.loss, c.view): c.text for c in read_published(cell.metric)}
        view = "before" if cell.metric == "accuracy" else cell.view
        again = whole.get((cell.data, cell.model, cell.loss, view))
        assert again in (None, cell.text)
        assert (again is None) == (cell.loss in ("flsd53-gra", "dual-gra"))


def test_values_are_fractions_and_every_loss_has_the_papers_name():
    for table in TABLES:
        for cell in read_published(table):
            assert cell.value == pytest.approx(float(cell.text) / 100)
            assert 0 < cell.value < 1
            assert cell.loss in LOSS_TITLES
    with pytest.raises(InputError, match="Did you mean 'ece'"):
        read_published("eces")
