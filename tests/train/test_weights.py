from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from calgrad.checks import FileError, InputError
from calgrad.data import load_data
from calgrad.predictions import Predictions
from calgrad.train import load_model, predict, train


@pytest.fixture
def run_folder(tiny, tmp_path):
    return train(tiny.replace(model="cnn", model_options={"width": 4}), 3, folder=tmp_path / "run", quiet=True)


def test_a_loaded_model_repeats_the_runs_predictions(run_folder):
    data = load_data("digits")
    for source in (run_folder, run_folder / "weights.safetensors"):
        trained = load_model(source)
        assert (trained.seed, trained.recipe.model, trained.model.training) == (3, "cnn", False)
        again = predict(trained, data.test, split="test")
        saved = Predictions.load(run_folder / "predictions-test.npz")
        assert torch.equal(again.logits, saved.logits)
        assert again.ids.tolist() == saved.ids.tolist()
        assert again.meta == saved.meta


def test_the_file_is_complete_with_batch_counters(run_folder):
    state = load_model(run_folder).model.state_dict()
    assert int(state["body.1.num_batches_tracked"]) == 3 * 4  # epochs x batches


def test_loading_leaves_random_numbers_alone(run_folder):
    before = torch.get_rng_state()
    load_model(run_folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_files_that_are_no_weights(tmp_path, run_folder):
    with pytest.raises(FileError, match="does not exist"):
        load_model(tmp_path / "nothing")
    foreign = tmp_path / "foreign.safetensors"
    save_file({"w": torch.zeros(1)}, str(foreign))
    with pytest.raises(FileError, match="is not a weights file of a calgrad run"):
        load_model(foreign)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes((run_folder / "weights.safetensors").read_bytes()[:-50])
    with pytest.raises(FileError, match="is not a weights file of a calgrad run"):
        load_model(cut)


def test_data_of_another_shape_is_refused(run_folder):
    with pytest.raises(InputError, match="trained for 10 classes, images of 8 px and 1 channels, but gaussians has 5"):
        predict(load_model(run_folder), load_data("gaussians").test)
