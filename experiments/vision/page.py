"""The page of the experiment in docs/; its runs may be on several questions."""

from experiments.controlled_pages import document, sections

__all__ = ["document", "sections"]
