"""Measures of a classifier's probabilities, with what chance alone would show beside them."""
