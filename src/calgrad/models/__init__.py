"""Models: `make_model("resnet50", classes=10, image_size=32)`."""

from calgrad.models.base import Classifier
from calgrad.models.pretrained import from_torchvision, load_weights
from calgrad.models.registry import MODELS, ModelEntry, make_model

__all__ = ["MODELS", "Classifier", "ModelEntry", "from_torchvision", "load_weights", "make_model"]
