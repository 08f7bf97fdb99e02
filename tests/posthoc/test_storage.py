"""Files: exact, without pickle, readable elsewhere, and foreign ones refused with their name."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import FileError, InputError
from calgrad.posthoc import CALIBRATORS, CalibrationWarning, NotFittedError, from_dict, load_calibrator, make_calibrator
from tests.posthoc.conftest import build, sample
from tests.reference import posthoc as reference


def fitted(name, classes=3, n=150):
    logits, labels = sample(n, classes, scale=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return build(name).fit(2 * logits, labels), 2 * logits


@pytest.mark.parametrize("classes", [2, 3])
def test_saved_and_loaded_is_equal_to_the_bit(name, classes, tmp_path):
    calibrator, logits = fitted(name, classes)
    path = tmp_path / "calibrator.json"
    calibrator.save(path)
    loaded = load_calibrator(path)
    assert type(loaded) is type(calibrator)
    assert loaded.parameters.keys() == calibrator.parameters.keys()
    for key, value in calibrator.parameters.items():
        assert torch.equal(loaded.parameters[key], value)
    assert loaded.report == calibrator.report
    assert torch.equal(loaded(logits), calibrator(logits))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - {"link", "link-temperature"}))
@pytest.mark.parametrize("classes", [2, 4])
def test_the_documented_formula_applied_to_the_file_in_plain_numpy(name, classes, tmp_path):
    calibrator, logits = fitted(name, classes)
    calibrator.save(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["calgrad_calibrator"] == 1
    assert document["method"] == name
    assert document["classes"] == classes
    assert reference.apply(document, logits.numpy()) == pytest.approx(calibrator(logits).numpy(), abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.floats(min_value=1e-300, max_value=1e300))
def test_floats_survive_exactly(value):
    calibrator, _ = fitted("temperature")
    calibrator.parameters = {"temperature": torch.tensor(value, dtype=torch.float64)}
    assert from_dict(json.loads(json.dumps(calibrator.to_dict()))).temperature == value


def test_unfitted_is_not_saved(name, tmp_path):
    with pytest.raises(NotFittedError):
        build(name).save(tmp_path / "c.json")
    assert not list(tmp_path.iterdir())


def broken(change):
    document = fitted("matrix")[0].to_dict()
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("calgrad_calibrator"), "no calgrad calibrator"),
        (lambda d: d.update(calgrad_calibrator=2), "upgrade"),
        (lambda d: d.pop("parameters"), "parameters"),
        (lambda d: d.update(method="magic"), "unknown calibrator"),
        (lambda d: d.update(classes=1), "classes"),
        (lambda d: d.update(classes=4), "does not fit 4 classes"),
        (lambda d: d.update(options={"evil": 1}), "no option"),
        (lambda d: d.update(options=3), "usable"),
        (lambda d: d["parameters"].pop("bias"), "has the parameters"),
        (lambda d: d["parameters"].update(bias=["a", "b", "c"]), "bias"),
        (lambda d: d["parameters"].update(bias=[1.0, None, 2.0]), "bias"),
        (lambda d: d["parameters"].update(bias=[1.0, float("nan"), 2.0]), "finite"),
        (lambda d: d["parameters"].update(weight=[[1.0], [1.0, 2.0]]), "weight"),
        (lambda d: d.update(report={"nope": 1}), "usable"),
    ],
)
def test_wrong_files_are_refused_by_name(change, said, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(broken(change)))
    with pytest.raises(FileError, match=said) as error:
        load_calibrator(path)
    assert "wrong.json" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{", b"\x80\x04K\x01.", b'"x"', b"null", b"[" * 100_000])
def test_foreign_and_truncated_files_are_refused_by_name(content, tmp_path):
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"foreign\.json"):
        load_calibrator(path)


def test_missing_and_unwritable_places(tmp_path):
    with pytest.raises(FileError, match=r"absent\.json"):
        load_calibrator(tmp_path / "absent.json")
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(FileError, match="cannot be written"):
        fitted("temperature")[0].save(tmp_path / "taken" / "calibrator.json")
    with pytest.raises(InputError, match="no calgrad calibrator"):
        from_dict([1])


def test_tables_that_do_not_fit_together_are_refused():
    document = fitted("histogram")[0].to_dict()
    document["parameters"]["values"] = [row[:2] for row in document["parameters"]["values"]]
    with pytest.raises(InputError, match="fit"):
        from_dict(document)


def test_loading_needs_no_samples_and_a_report_is_optional():
    document = fitted("temperature")[0].to_dict()
    del document["report"]
    assert np.isnan(from_dict(document).report.nll_after)
    assert make_calibrator("temperature").is_fitted is False
