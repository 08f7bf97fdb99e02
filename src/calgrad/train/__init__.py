"""Training: `train(recipe, seed)` makes a run folder."""

from calgrad.train.ends import DivergedError
from calgrad.train.folders import default_folder
from calgrad.train.graph import prepare
from calgrad.train.loop import train, validation_metrics
from calgrad.train.predict import predict
from calgrad.train.recipe import Recipe, describe_fields, parse_assignment
from calgrad.train.record import Record
from calgrad.train.signals import Interrupted
from calgrad.train.weights import TrainedModel, load_model

__all__ = [
    "DivergedError",
    "Interrupted",
    "Recipe",
    "Record",
    "TrainedModel",
    "default_folder",
    "describe_fields",
    "load_model",
    "parse_assignment",
    "predict",
    "prepare",
    "train",
    "validation_metrics",
]
