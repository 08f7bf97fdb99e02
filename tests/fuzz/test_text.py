"""Recipes in YAML, calibrators in JSON, checkpoints and weights: data, never code."""

from __future__ import annotations

import hashlib
import json
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from calgrad import load_calibrator, make_calibrator
from calgrad.checks import CalgradError, FileError, InputError
from calgrad.files import read_yaml
from calgrad.train import Recipe, load_model, parse_assignment, train
from calgrad.train.checkpoint import load_latest, save_checkpoint

from .conftest import FUZZ, damaged

RECIPE = Recipe(data="digits", model="mlp", loss="bsce-gra", loss_options={"gamma": 4}, epochs=3, batch=300)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

# ----------------------------------------------------------------------------------------------------------------- YAML


def test_recipes(tmp_path, check):
    path, content = tmp_path / "recipe.yaml", RECIPE.to_yaml().encode()
    assert check(path, content, Recipe.load).epochs == 3

    @FUZZ
    @given(st.one_of(damaged(content), st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8"))))
    def fuzz(data):
        check(path, data, Recipe.load)

    fuzz()


@pytest.mark.parametrize("field", ["data", "model_options", "lr", "milestones", "epochs", "seeds", "name"])
def test_recipes_of_any_values(field, tmp_path, check):
    @FUZZ
    @given(JSON)
    def fuzz(value):
        check(tmp_path / "recipe.yaml", json.dumps({**RECIPE.to_dict(), field: value}).encode(), Recipe.load)

    fuzz()


@pytest.mark.parametrize(
    "text",
    [
        "data: !!python/object/apply:os.system ['touch executed']",
        "!!python/object/new:subprocess.Popen [['touch', 'executed']]",
        "data: !!python/name:os.system",
        "data: " + "[" * 50_000,
        "data: " + "9" * 100_000,
        "data: 2020-99-99",
        "? [a, b]\n: c",
        "data: &x [1]\nmodel: *x",
        "x: " + "y" * (2 << 20),
        "- a\n- b",
        "",
    ],
    ids=["apply", "new", "name", "deep", "digits", "date", "key", "alias", "long", "list", "empty"],
)
def test_hostile_recipes_are_refused_by_name(text, tmp_path, check, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(check(tmp_path / "recipe.yaml", text.encode(), Recipe.load), CalgradError)
    assert not (tmp_path / "executed").exists()


def test_a_billion_laughs_are_not_laughed():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(InputError, match=r"laughs uses YAML aliases"):
        read_yaml("\n".join(lines), "laughs")


@pytest.mark.parametrize("text", ["lr=[", "lr=!!python/name:os.system", "lr=*x", "lr=" + "[" * 50_000])
def test_settings_on_the_command_line_are_yaml_too(text):
    with pytest.raises(CalgradError):
        parse_assignment(text)


# ----------------------------------------------------------------------------------------------------------------- JSON


@pytest.fixture(scope="module")
def calibrators() -> dict[str, bytes]:
    torch.manual_seed(0)
    logits, labels = torch.randn(300, 3), torch.randint(3, (300,))
    made = {name: make_calibrator(name).fit(logits, labels) for name in ("temperature", "isotonic", "dirichlet")}
    return {name: json.dumps(c.to_dict()).encode() for name, c in made.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["temperature", "isotonic", "dirichlet"])
def test_calibrators(name, calibrators, tmp_path, check):
    path = tmp_path / "calibrator.json"
    content = json.loads(calibrators[name])
    keys = st.sampled_from(sorted(content))

    @FUZZ
    @given(
        st.one_of(damaged(calibrators[name]), st.tuples(keys, JSON).map(lambda kv: encoded({**content, kv[0]: kv[1]})))
    )
    def fuzz(data):
        check(path, data, load_calibrator)

    fuzz()


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"classes": 10**9},
        {"classes": 10**30},
        {"parameters": {"temperature": 10**400}},
        {"parameters": {"temperature": [[[]]]}},
        {"method": "__class__"},
        {"options": [["a", 1]]},
        {"options": {"self": 1}},
        {"report": {"nll_before": 0}},
        {"report": [1]},
    ],
    ids=str,
)
def test_hostile_calibrators(change, calibrators, tmp_path, check):
    for method in ("temperature", "identity"):
        content = {**json.loads(calibrators["temperature"]), "method": method, **change}
        if method == "identity":
            content = {"parameters": {}, **content, **({} if "parameters" in change else {"parameters": {}})}
        assert isinstance(check(tmp_path / "c.json", encoded(content), load_calibrator), FileError)


def test_a_number_of_too_many_digits(tmp_path, check):
    assert isinstance(check(tmp_path / "c.json", b"9" * 10_000, load_calibrator), FileError)


# ------------------------------------------------------------------------------------------------ checkpoints and weights


def test_checkpoints(tmp_path):
    state = {"tensors": {"w": torch.arange(6.0)}, "epoch": 1, "record": "{}"}
    path = save_checkpoint(tmp_path, 1, state)
    good = path.read_bytes()

    @FUZZ
    @given(damaged(good))
    def fuzz(content):
        path.write_bytes(content)
        _sign(path)  # as an attacker would
        found = None
        with suppress(FileError):
            found = load_latest(tmp_path, say=print)
        assert found is None or isinstance(found, dict)

    fuzz()


def test_a_compressed_checkpoint_is_a_bomb(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"w": torch.zeros(1 << 20)})
    with zipfile.ZipFile(path) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    _sign(path)
    with pytest.raises(FileError, match=r"step-000000001\.pt .* compressed data"):
        load_latest(tmp_path, say=print)


def _sign(path: Path) -> None:
    path.with_name(path.name + ".sha256").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> bytes:
    recipe = RECIPE.replace(epochs=1, model_options={"hidden": 4})
    folder = train(recipe, 1, folder=tmp_path_factory.mktemp("run") / "run", device="cpu", quiet=True)
    return (folder / "weights.safetensors").read_bytes()


def test_weights(weights, tmp_path, check):
    @FUZZ
    @given(damaged(weights))
    def fuzz(content):
        check(tmp_path / "weights.safetensors", content, load_model)

    fuzz()


@pytest.mark.parametrize(
    "options", [{"hidden": 1 << 33}, {"hidden": -1}, {"hidden": "x"}, {"folder": "/"}, {"nonsense": 1}]
)
def test_weights_that_ask_for_another_network_build_none(options, tmp_path, check):
    header = {
        "recipe": RECIPE.replace(model_options=options).to_dict(),
        "seed": 1,
        "shape": {"classes": 10, "image_size": 8, "channels": 1, "mean": [0.0], "std": [1.0]},
    }
    content = save({"x": torch.zeros(1)}, metadata={"calgrad": json.dumps(header)})
    assert isinstance(check(tmp_path / "weights.safetensors", content, load_model), CalgradError)
