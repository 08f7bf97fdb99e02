from __future__ import annotations

import dataclasses

import pytest

from calgrad.checks import FileError, InputError
from calgrad.train import Recipe, describe_fields, parse_assignment


def test_yaml_there_and_back(tiny, tmp_path):
    recipe = tiny.replace(loss="bsce-gra", loss_options={"gamma": 4, "beta": 2.0}, milestones=[1, 2], schedule="steps")
    path = tmp_path / "mine.yaml"
    path.write_text(recipe.to_yaml())
    assert Recipe.load(path) == recipe
    assert hash(Recipe.load(path)) == hash(recipe)
    assert Recipe.load(path).fingerprint() == recipe.fingerprint()


def test_the_name_of_a_file_is_the_name_of_its_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: digits\nmodel: mlp\nlr: 1e-3\nclip: null\n")
    recipe = Recipe.load(path)
    assert recipe.name == "mine"
    assert recipe.lr == 0.001  # YAML 1.1 reads 1e-3 as text
    assert recipe.clip is None


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    with pytest.raises(InputError, match=r"unknown recipe key 'learning_rat'") as caught:
        Recipe.from_dict({"data": "digits", "model": "mlp", "learning_rat": 0.1})
    assert "Known:" in str(caught.value)
    with pytest.raises(InputError, match="Did you mean 'optimiser'"):
        Recipe.from_dict({"data": "digits", "model": "mlp", "optimizer": "sgd"})


def test_a_missing_key_says_what_it_is_for():
    with pytest.raises(InputError, match="needs `model`: network"):
        Recipe.from_dict({"data": "digits"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": "ten"}, "`epochs` must be a whole number, got 'ten'"),
        ({"epochs": 0}, "`epochs` must be a whole number of at least 1"),
        ({"epochs": True}, "`epochs` must be a whole number"),
        ({"epochs": 2.5}, "`epochs` must be a whole number"),
        ({"lr": "fast"}, "`lr` must be a number"),
        ({"lr": -1}, "`lr` must be at least 0"),
        ({"lr": float("nan")}, "`lr` must be at least 0"),
        ({"clip": 0}, "`clip` must be above zero"),
        ({"ema": 1.0}, r"`ema` must lie in \[0, 1\)"),
        ({"loss": 3}, "`loss` must be text"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": ["one"]}, "`seeds` must be a list of whole numbers"),
        ({"loss_options": [1]}, "`loss_options` must be a mapping"),
        ({"loss_options": {"reduction": "sum"}}, "`reduction` is a key of the recipe itself"),
        ({"optimiser": "lion"}, "`optimiser` must be one of 'sgd'"),
        ({"milestones": [1]}, "`milestones` belong to schedule 'steps'"),
        ({"schedule": "steps", "milestones": [2, 1]}, "`milestones` must increase"),
        ({"warmup": 4}, "must not outlast the run"),
        ({"gradient_epochs": [4]}, r"`gradient_epochs` must lie in 1\.\.3"),
    ],
)
def test_bad_values_are_refused_in_words(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        tiny.replace(**changes)


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(FileError, match="cannot read the recipe"):
        Recipe.load(tmp_path / "missing.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("data: [")
    with pytest.raises(FileError, match="is not YAML"):
        Recipe.load(broken)
    broken.write_text("- just\n- a list\n")
    with pytest.raises(FileError, match="`key: value` lines"):
        Recipe.load(broken)
    broken.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(FileError, match="is not YAML"):
        Recipe.load(broken)
    broken.write_text("data: digits\nmodel: mlp\nepoch: 3\n")
    with pytest.raises(InputError, match=r"broken\.yaml: unknown recipe key 'epoch'. Did you mean 'epochs'"):
        Recipe.load(broken)


def test_the_fingerprint_is_what_decides_the_numbers(tiny):
    assert tiny.fingerprint() != tiny.replace(lr=0.2).fingerprint()
    assert tiny.fingerprint() != tiny.replace(loss="focal").fingerprint()
    same = tiny.replace(name="other", seeds=[7], checkpoint_every=9, compile="none", checkpoint_minutes=1)
    assert tiny.fingerprint() == same.fingerprint()


def test_a_recipe_is_frozen(tiny):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny.lr = 1.0


def test_every_field_is_documented_in_one_line():
    docs = describe_fields()
    assert list(docs) == [f.name for f in dataclasses.fields(Recipe)]
    assert all(10 < len(doc) < 110 and "\n" not in doc for doc in docs.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs=5", ("epochs", 5)),
        ("lr=1e-3", ("lr", "1e-3")),
        ("clip=none", ("clip", None)),
        ("seeds=[1, 42]", ("seeds", [1, 42])),
        ("loss_options={gamma: 4}", ("loss_options", {"gamma": 4})),
        ("model=timm:resnet50", ("model", "timm:resnet50")),
    ],
)
def test_settings_from_a_command_line(text, expected):
    assert parse_assignment(text) == expected


def test_a_setting_without_an_equals_sign():
    with pytest.raises(InputError, match="expected key=value, got 'epochs'"):
        parse_assignment("epochs")
