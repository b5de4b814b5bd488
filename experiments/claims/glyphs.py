"""Images of printed digits, drawn from the typefaces that come with matplotlib."""

import pathlib

import matplotlib
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

SEEN = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold",
    "DejaVuSerif", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBol", "cmr10", "cmss10",
)  # fmt: skip
UNSEEN = ("DejaVuSansMono-Oblique", "DejaVuSerif-Bold", "STIXGeneralItalic", "cmtt10")
CLASSES = 10
FINE = 3  # sampled points along each side of a pixel
FRAME = 200.0  # side of an image in the units of outlines, whose curves become lines of about 1


def digits(count: int, side: int, fonts: tuple[str, ...], seed: int) -> tuple:
    """Digits, each turned, stretched and moved a little: bool [count, side, side], and labels.

    The same seed gives the same digits at every size.
    """
    rng = np.random.default_rng(seed)
    outlines = {font: [_outline(font, digit) for digit in range(CLASSES)] for font in fonts}
    label_N = rng.integers(CLASSES, size=count)
    font_N = rng.integers(len(fonts), size=count)
    line = (np.arange(side * FINE) + 0.5) * FRAME / (side * FINE)
    points = np.stack(np.meshgrid(line, line[::-1]), axis=-1).reshape(-1, 2)
    images = [
        _inside(_moved(outlines[fonts[f]][digit], rng), points)
        for f, digit in zip(font_N, label_N, strict=True)
    ]
    ink_NRC = np.reshape(images, (count, side, FINE, side, FINE)).mean(axis=(2, 4)) > 0.5
    return ink_NRC, label_N


def _outline(font: str, digit: int) -> Path:
    """A digit's outline, centred at 0 and as high as the image."""
    file = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    path = TextPath((0, 0), str(digit), size=FRAME, prop=FontProperties(fname=file))
    box = path.get_extents()
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    return path.transformed(Affine2D().translate(*(-m for m in middle)).scale(FRAME / box.height))


def _inside(outline: Path, points: np.ndarray) -> np.ndarray:
    """Whether each point lies inside the outline and in none of its holes, bool [N]."""
    rings = [Path(ring).contains_points(points) for ring in outline.to_polygons()]
    return np.logical_xor.reduce(rings)


def _moved(outline: Path, rng: np.random.Generator) -> Path:
    """The outline turned, slanted, stretched and moved at random."""
    turn, slant = rng.uniform(-12, 12), rng.uniform(-0.15, 0.15)
    size = rng.uniform(0.7, 0.9)
    middle = FRAME * (0.5 + rng.uniform(-0.07, 0.07, size=2))
    move = Affine2D().rotate_deg(turn).skew(slant, 0).scale(size * rng.uniform(0.85, 1.1), size)
    return outline.transformed(move.translate(*middle))
