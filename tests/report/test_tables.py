"""One table in four dresses: same cells, safe text."""

from __future__ import annotations

import csv
import io

from rich.console import Console

from calgrad.report.tables import Cell, Table


def example() -> Table:
    return Table(
        "A & B: 50 %",
        ["loss", "ECE"],
        [("as trained", [[Cell("ce_1"), Cell("4.35")], [Cell("x|y*"), Cell("0.74", bold=True)]])],
        caption="n = 3 <seeds>",
    )


def test_markdown_escapes_and_keeps_bold():
    text = example().to_markdown()
    assert "| x\\|y\\* | **0.74** |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {3}


def test_latex_escapes_what_would_break_it():
    text = example().to_latex()
    assert r"\textbf{0.74}" in text
    assert r"ce\_1" in text
    assert r"A \& B: 50 \%" in text
    assert "$<$seeds$>$" in text
    assert text.count(r"\begin") == text.count(r"\end")


def test_csv_reads_back():
    rows = list(csv.reader(io.StringIO(example().to_csv())))
    assert rows == [["section", "loss", "ECE"], ["as trained", "ce_1", "4.35"], ["as trained", "x|y*", "0.74"]]


def test_terminal_shows_markup_as_text():
    table = Table("t", ["a", "b"], [("", [[Cell("[red]x"), Cell("1")]])])
    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_rich())
    assert "[red]x" in console.file.getvalue()
