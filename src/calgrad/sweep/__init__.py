"""A grid of runs."""

from calgrad.sweep.local import Run, SweepError, run_all, usable_cores

__all__ = ["Run", "SweepError", "run_all", "usable_cores"]
