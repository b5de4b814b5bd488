"""The explorer: one HTML file in which a reader sets options and compares methods.

All numbers are measured here, on grids of options; the page only looks them up and draws them.
"""

import base64
import gzip
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.encodings import card
from posenc_jax.encodings.card import facts, summary
from posenc_jax.lab.gallery import option_grid, page, trained
from posenc_jax.lab.gallery.option_grid import Point
from posenc_jax.lab.report import webpage
from posenc_jax.options import FieldError

HERE, REPORT = Path(__file__).parent, Path(webpage.__file__).parent
SCRIPTS = (REPORT / "elements.js", HERE / "explorer.js", HERE / "explorer_panels.js")
FIRST = ("rope", "alibi", "sinusoidal")  # methods that the page shows when it opens
# How the numbers of a field are stored: see `quantised`.
STORED = {"kernel": "u16", "past": "u16", "matrix": "u8", "code": "u8", "angle": "turn",
          "wave": "f32"}  # fmt: skip


def measured(name: str) -> list[Point | str]:
    """Returns the points of a method on the grid of its options.

    FieldError: no such method, or one of `option_grid.ABSENT`.
    """
    if name in option_grid.ABSENT:
        raise FieldError("encoding.name", f"{name} has no distances: its positions are "
                         f"{option_grid.ABSENT[name]}")  # fmt: skip
    with _compiled_quickly():
        return list(option_grid.points(card(name).name))


@contextmanager
def _compiled_quickly() -> Iterator[None]:
    """Compiles with few optimizations: programs are small, and run a few times only."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def encoded_maps(maps: trained.Maps) -> tuple[bytes, tuple[int, ...]]:
    """Returns (255 times the square roots of `within` and then of `beyond`, a byte each; their
    shape, [layers, heads, queries]).
    """
    raw = b"".join(np.round(255 * np.sqrt(w_NHQK)).astype(np.uint8).tobytes() for w_NHQK in maps)
    return raw, maps.within.shape[:3]


def encoded(measured_points: Iterable[Point | str]) -> bytes:
    """Returns points as bytes: the length of a JSON text as uint32, the text, and the frames.

    The text has `points`, each of them the reason why it is refused, or the numbers of its frames;
    and `frames`, each [type, offset, low, high, shape]. Equal frames are stored once.
    """
    frames, numbers, blob = [], {}, bytearray()

    def stored(field: str, values: np.ndarray) -> int:
        raw, low, high = quantised(STORED[field], values)
        key = (STORED[field], raw, low, high, values.shape)
        if key not in numbers:
            numbers[key] = len(frames)
            frames.append([STORED[field], len(blob), low, high, values.shape])
            blob.extend(raw)
        return numbers[key]

    listed: list[Any] = []
    for point in measured_points:
        if isinstance(point, str):
            listed.append(point)
            continue
        arrays = {field: getattr(point, field) for field in STORED}
        numbered = {f: stored(f, values) for f, values in arrays.items() if values is not None}
        listed.append({"rows": point.rows, **numbered})
    text = json.dumps({"points": listed, "frames": frames}, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text + blob


def zipped(raw: bytes) -> str:
    """Returns bytes as text for the page: base64 of gzip."""
    return base64.b64encode(gzip.compress(raw, mtime=0)).decode()


def shown(name: str, raw: bytes) -> dict[str, Any]:
    """Returns a method's data on the page, from its `encoded` points."""
    method = card(name)
    return {
        "kind": method.kind,
        "summary": summary(method),
        "facts": facts(method),
        "knobs": option_grid.knobs(name),
        "bytes": zipped(raw),
    }


def quantised(kind: str, values: np.ndarray) -> tuple[bytes, float, float]:
    """Returns values as bytes, and the least and the largest of them.

    Args:
      kind: "u8" or "u16": even steps from the least value to the largest, and the largest code for
        NaN; "turn": turns in steps of 1/256, each minus the one before on the last axis, which gzip
        makes small; "f32": as they are.
      values: NaN is not defined.
    """
    if kind == "f32":
        return values.astype("<f4").tobytes(), 0.0, 0.0
    if kind == "turn":
        steps = np.round(values * 256).astype(np.int64)
        return np.diff(steps, axis=-1, prepend=0).astype(np.uint8).tobytes(), 0.0, 1.0
    dtype = np.dtype("u1" if kind == "u8" else "<u2")
    none = np.iinfo(dtype).max
    is_finite = np.isfinite(values)
    low, high = (float(f"{end:.6g}") for end in _ends(values[is_finite]))
    scaled = (np.where(is_finite, values, low) - low) / ((high - low) or 1.0) * (none - 1)
    codes = np.where(is_finite, np.clip(np.round(scaled), 0, none - 1), none)
    return codes.astype(dtype).tobytes(), low, high


def _ends(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest value; (0, 0) of no values."""
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def html(
    encoded_points: Mapping[str, bytes], maps: Mapping[str, tuple[bytes, Sequence[int]]]
) -> str:
    """Returns the page of the explorer.

    Args:
      encoded_points: of each method, as `encoded` returns them.
      maps: of each trained method, as `encoded_maps` returns them.
    """
    methods = {name: shown(name, raw) for name, raw in encoded_points.items()}
    data = {
        "trained": {n: {"shape": shape, "bytes": zipped(raw)} for n, (raw, shape) in maps.items()},
        "methods": methods,
        "families": {page.FAMILIES[kind]: names for kind, names in page.families(methods).items()},
        "first": [name for name in FIRST if name in methods] or list(methods)[:1],
        "span": option_grid.SPAN,
        "lengths": option_grid.LENGTHS,
        "matrix": option_grid.MATRIX,
        "pairs": max(option_grid.WIDTHS) // 2,
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")  # so that the data cannot close its element
    body = f"""<header><h1>Positional encodings: the explorer</h1>
{"".join(f"<p>{escape(line)}</p>" for line in how_to_read())}
</header>
<aside id="controls" aria-label="controls"></aside>
<main id="main"><noscript><p>This page needs its own script. Allow scripts, or read the gallery.
</p></noscript></main>
<script type="application/json" id="data">{text}</script>
<script>{"".join(script.read_text("utf-8") for script in SCRIPTS)}</script>"""
    style = (HERE / "explorer.css").read_text("utf-8")
    return webpage.html_page("Positional encodings: the explorer", body,
                             allowed="script-src 'unsafe-inline'", style=style)  # fmt: skip


def how_to_read() -> list[str]:
    """Returns the paragraphs that explain all panels."""
    return [
        "Choose methods and move their options. Nothing is computed here: every number was made "
        "by the library, for each choice of options that the controls offer.",
        "A score is an attention logit minus the logit without positions: it is what position "
        "adds. Two tokens of the same content are compared, and the score is the mean over "
        "contents; methods by content get random tokens. A method that only gives positions "
        "stands before rope. Parameters are not trained, but in the section on attention; those "
        "that would start at zero are drawn.",
        "Positions count up along one axis, the last one of methods for images, videos and cameras."
        + "".join(
            f" {name} is not here: its positions are {what}."
            for name, what in option_grid.ABSENT.items()
        ),
    ]
