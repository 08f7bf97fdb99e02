"""Data sets: found, read, split, augmented and batched.

Example:
    >>> from calgrad.data import Augment, batches, load_data
    >>> data = load_data("digits")  # or load_data("cifar10", split="paper").to("cuda")
    >>> usual = Augment.usual(data.spec)
    >>> len(list(batches(data.train, 100, epoch=0, shuffle=True, augment=usual)))
    10
"""

from calgrad.data.augment import Augment, mixup, normalise, random_crop_flip
from calgrad.data.download import fetch
from calgrad.data.gaussians import gaussian_means, gaussian_posterior
from calgrad.data.human import attach_human_labels
from calgrad.data.load import load_data
from calgrad.data.loader import Batch, batches, make_batch
from calgrad.data.parts import FolderPart, Part, Splits, TensorPart
from calgrad.data.plan import EpochPlan, plan_epoch
from calgrad.data.root import data_root
from calgrad.data.spec import SPECS, DataSpec, find_spec
from calgrad.data.split import SplitIndices, paper_split, seeded_split
from calgrad.data.verification import verify

__all__ = [
    "SPECS",
    "Augment",
    "Batch",
    "DataSpec",
    "EpochPlan",
    "FolderPart",
    "Part",
    "SplitIndices",
    "Splits",
    "TensorPart",
    "attach_human_labels",
    "batches",
    "data_root",
    "fetch",
    "find_spec",
    "gaussian_means",
    "gaussian_posterior",
    "load_data",
    "make_batch",
    "mixup",
    "normalise",
    "paper_split",
    "plan_epoch",
    "random_crop_flip",
    "seeded_split",
    "verify",
]
