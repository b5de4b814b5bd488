"""The page of the experiment in docs/; its runs may be on several questions."""

from experiments.controlled_pages import document

__all__ = ["document"]
