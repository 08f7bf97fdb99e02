"""One direction of data flow: a lower layer never imports a higher one, and the mathematics needs torch and numpy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "calgrad"
LAYERS = [
    {"_version"},
    {"checks"},
    {"files"},
    {"losses", "metrics", "posthoc", "models", "data", "predictions"},
    {"train"},
    {"recipes", "report", "sweep", "paper", "integrations"},
    {"plot"},  # the public names of report's pictures
    {"cli"},
    {"__main__"},
]
# A calibrator may undo a loss and be judged by a metric; a summary reads predictions. Nothing points the other way.
SAME_LAYER = {
    ("posthoc", "losses"),
    ("posthoc", "metrics"),
    ("metrics", "predictions"),
    ("data", "predictions"),
    ("sweep", "recipes"),
    ("report", "sweep"),
    ("paper", "report"),
    ("paper", "sweep"),
    ("paper", "recipes"),
    ("report", "recipes"),
    ("integrations", "report"),  # a callback logs reliability figures
}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def calgrad_imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "calgrad":
                modules = [f"calgrad.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "calgrad" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_lower_layers_do_not_import_higher_ones(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for other in calgrad_imports(path):
        if other == own or other not in RANK:
            continue
        allowed = RANK[other] < RANK[own] or (own, other) in SAME_LAYER
        assert allowed, f"{path.relative_to(ROOT)} imports calgrad.{other}, which is not below it"


def test_importing_the_mathematics_loads_nothing_heavy():
    heavy = ["matplotlib", "sklearn", "torchmetrics", "typer", "rich", "scipy", "pandas", "yaml", "PIL", "jinja2"]
    code = (
        "import torch, sys; before = set(sys.modules); import calgrad, calgrad.losses, calgrad.metrics, calgrad.posthoc;"
        f"print([m for m in {heavy} if m in sys.modules and m not in before])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_import_takes_under_a_second_beyond_torch():
    code = (
        "import torch, time; t = time.perf_counter(); import calgrad; calgrad.make_loss; print(time.perf_counter() - t)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 1.0
