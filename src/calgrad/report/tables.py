"""A table once, in every dress: terminal, Markdown, LaTeX, CSV.

A `Table` holds what is shown, already as text, with the cells that deserve bold. Nothing here knows what a metric is.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Cell:
    """A cell's text, and whether it is set in bold."""

    text: str
    bold: bool = False


@dataclass
class Table:
    """Columns, and sections of rows; a section has a title of its own ("after temperature")."""

    title: str
    columns: list[str]
    sections: list[tuple[str, list[list[Cell]]]] = field(default_factory=list)
    caption: str = ""

    def to_markdown(self) -> str:
        """GitHub's Markdown, a section's title as a row of its own."""
        lines = [
            f"**{_markdown(self.title)}**\n",
            "| " + " | ".join(map(_markdown, self.columns)) + " |",
            "|" + "|".join([":---"] + ["---:"] * (len(self.columns) - 1)) + "|",
        ]
        for title, rows in self.sections:
            if title:
                lines.append("| *" + _markdown(title) + "* |" + " |" * (len(self.columns) - 1))
            for row in rows:
                texts = [f"**{_markdown(cell.text)}**" if cell.bold else _markdown(cell.text) for cell in row]
                lines.append("| " + " | ".join(texts) + " |")
        return "\n".join([*lines, "", self.caption, ""])

    def to_latex(self) -> str:
        """A booktabs table, ready for a paper."""
        lines = [
            r"\begin{table}",
            r"  \centering",
            r"  \begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}",
            r"    \toprule",
            "    " + " & ".join(map(_latex, self.columns)) + r" \\",
        ]
        for title, rows in self.sections:
            lines.append(r"    \midrule")
            if title:
                lines.append(rf"    \multicolumn{{{len(self.columns)}}}{{l}}{{\emph{{{_latex(title)}}}}} \\")
            for row in rows:
                texts = [rf"\textbf{{{_latex(cell.text)}}}" if cell.bold else _latex(cell.text) for cell in row]
                lines.append("    " + " & ".join(texts) + r" \\")
        caption = rf"  \caption{{{_latex(self.title)}. {_latex(self.caption)}}}"
        return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", caption, r"\end{table}", ""])

    def to_csv(self) -> str:
        """As shown, with the section in the first column."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["section", *self.columns])
        for title, rows in self.sections:
            writer.writerows([title, *(cell.text for cell in row)] for row in rows)
        return out.getvalue()

    def to_rich(self) -> RichTable:
        """For a terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(
            title=escape(self.title),
            caption=escape(self.caption),
            caption_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for i, column in enumerate(self.columns):
            table.add_column(escape(column), justify="right" if i else "left", no_wrap=True)
        for title, rows in self.sections:
            if title:
                table.add_section()
                table.add_row(f"[italic]{escape(title)}[/]")
            for row in rows:
                table.add_row(*(f"[bold green]{escape(c.text)}[/]" if c.bold else escape(c.text) for c in row))
        return table


def _markdown(text: str) -> str:
    return re.sub(r"([|*_`<])", r"\\\1", text)


_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "<": "$<$", ">": "$>$", "~": r"\textasciitilde{}"}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, "\\" + c if c in "&%$#_{}" else c) for c in text)
