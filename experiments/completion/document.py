"""The page of the experiment in docs/."""

from experiments.completion.pages import document

__all__ = ["document"]
