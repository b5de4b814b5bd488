"""The pages that `mkdocs build` makes from the registry and from the committed records."""
