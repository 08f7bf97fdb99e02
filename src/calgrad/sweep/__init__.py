"""A grid of runs: in this process, over the local cores and GPUs, or on Ray."""

from calgrad.sweep.choice import LossChoice, settings_of
from calgrad.sweep.local import run_all, usable_cores
from calgrad.sweep.run import Run, run_folder
from calgrad.sweep.schedule import SweepError

__all__ = ["LossChoice", "Run", "SweepError", "run_all", "run_folder", "settings_of", "usable_cores"]
