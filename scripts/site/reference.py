"""The API reference of the site: every name that users import, and the names that extend it."""

import posenc_jax

# Modules whose public names are for those who write an encoding or read the catalogue.
MORE = ("posenc_jax.encodings.card.Card", "posenc_jax.encodings.card.method",
        "posenc_jax.options.FieldError", "posenc_jax.encodings.check", "posenc_jax.encodings.reach",
        "posenc_jax.encodings.rotary.convert_pairing")  # fmt: skip


def page() -> str:
    """Returns the page in Markdown; mkdocstrings fills it in."""
    lines = ["# Reference", "", "Letters in names of arrays: B batch, T time, Q query time, K key "
             "time, H heads, C head width, D model width, V vocabulary, N layers.", ""]  # fmt: skip
    for name in posenc_jax.__all__:
        found = getattr(posenc_jax, name)
        if name != "CATALOG":
            lines += [f"::: {found.__module__}.{found.__qualname__}", ""]
    lines += ["## To extend it", ""]
    for path in MORE:
        lines += [f"::: {path}", ""]
    return "\n".join(lines)
