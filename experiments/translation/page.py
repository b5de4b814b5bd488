"""The page of the experiment in docs/; its runs may be on several tasks."""

from experiments.controlled_pages import document, sections

__all__ = ["document", "sections"]
