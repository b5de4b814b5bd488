"""The page of the experiment in docs/."""

from experiments.long_memory.pages import document

__all__ = ["document"]
