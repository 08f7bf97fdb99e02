"""What the docs point to exists: anchors, references, files; and what the code points to is in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w-]+)">', text))


def test_every_deviation_named_in_the_code_is_explained():
    known = anchors(ROOT / "docs" / "deviations.md")
    named = {(path.name, a) for path in SOURCES for a in re.findall(r"deviations\.md#([\w-]+)", path.read_text())}
    assert len(named) > 5
    assert [pair for pair in sorted(named) if pair[1] not in known] == []


def test_every_reference_key_has_its_entry():
    known = anchors(ROOT / "docs" / "references.md")
    for path in [*SOURCES, *PAGES]:
        for key in re.findall(r"\[([A-Z][a-z]+\d{2}b?)\]", path.read_text()):
            assert key in known, f"{path.relative_to(ROOT)} cites [{key}], which docs/references.md does not have"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name} links to {target}, and there is no such heading"
