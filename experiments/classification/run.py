"""Trains and tests an encoder with each encoding."""

from experiments.controlled import measure
from experiments.controlled_pages import sections

__all__ = ["measure", "sections"]
