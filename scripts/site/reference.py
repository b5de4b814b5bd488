"""The API reference of the site: every name that users import, and the names that extend it."""

import inspect
from pathlib import Path

import posenc_jax

WHOLE = ("    options:", "      show_if_no_docstring: true")  # fields and hooks
# Names for those who write an encoding or read the catalogue.
MORE = ("posenc_jax.encodings.card.Card", "posenc_jax.testing",
        "posenc_jax.masks", "posenc_jax.options.FieldError", "posenc_jax.encodings.check",
        "posenc_jax.encodings.reach", "posenc_jax.encodings.rotary.convert_pairing")  # fmt: skip


def page() -> str:
    """Returns the page in Markdown; mkdocstrings fills it in."""
    lines = ["# Reference", "", "Letters in names of arrays: B batch, T time, Q query time, K key "
             "time, H heads, C head width, D model width, V vocabulary, N layers.", ""]  # fmt: skip
    for name in posenc_jax.__all__:
        if name != "CATALOG":
            lines += [*_entry(name), ""]
    lines += ["## To extend it", ""]
    for path in MORE:
        lines += [f"::: {path}", ""]
    return "\n".join(lines)


def path(name: str) -> str:
    """Returns the dotted path of a public name where it is defined; its id on the page."""
    public = getattr(posenc_jax, name)
    return f"{public.__module__}.{public.__qualname__}"


def _entry(name: str) -> list[str]:
    """Returns the lines of a name; mkdocstrings would find a module if it has the same path."""
    public = getattr(posenc_jax, name)
    file = Path(inspect.getfile(public))
    if file.name == "__init__.py" and file.with_name(f"{name}.py").exists():
        signature, said = f"`{name}{inspect.signature(public)}`", inspect.getdoc(public) or ""
        return [f"## {name} {{ #{path(name)} }}", "", signature, "", said]
    return [f"::: {path(name)}", *(WHOLE if hasattr(public, "_replace") else ())]
