"""Tasks made of prepared TFDS sets, by what a set holds.

    holds                      task                                                  sizes
    images with labels         naming them, see `images.py`                          patches a side
    a question and its answer  saying the answer byte by byte, see `question_answer.py`        tokens
    text                       next-byte prediction, documents packed, `text_windows.py`  bytes

Splits are the set's own; where it has none for validation or test, the last 5% of what is left of
its training split serve. `train`, `valid` and `test` name others, in TFDS's words: "train[:10%]".

A set of up to FITS bytes and MANY examples is read once at the start and lies on the device, as the
embedded text does. Of a larger text the training windows are read step by step, see `streamed_text.py`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab.tasks import images, pairs
from posenc_jax.lab.tasks.masked import check_share
from posenc_jax.lab.tasks.streamed_text import feeder
from posenc_jax.lab.tasks.task import Task, check_least
from posenc_jax.lab.tasks.tfds_folder import Prepared, examples, source
from posenc_jax.lab.tasks.text_windows import SMALLEST, SPLITS, document, windowed
from posenc_jax.options import choices_for

FITS, MANY = 2**28, 200_000  # an example takes about 70 microseconds to read: 15 seconds at most
HEAD = 2**23  # bytes of a larger text that its baselines count
QUESTIONS = {"commands": "actions", "question": "answer"}
TEXTS = ("text", "book_text")  # taken where a set has several texts
_VALID = ("validation", "valid", "val", "dev")


class Plan(NamedTuple):
    """What will be read of a set, known from its two small files; `streamed`: step by step."""

    found: Prepared
    splits: dict[str, str]
    least: int
    most: int | None
    width: Callable[[int], int]
    chosen: Any
    streamed: bool = False


def kind(found: Prepared) -> str:
    """What a set holds: "images", "pairs" or "text". ValueError: none of them."""
    if found.of_type("Image") and found.of_type("ClassLabel"):
        return "images"
    texts = found.of_type("Text")
    if any(question in texts and answer in texts for question, answer in QUESTIONS.items()):
        return "pairs"
    if texts:
        return "text"
    raise ValueError(
        f"task.name: {found.name} holds no text and no images with labels; its features: "
        f"{', '.join(found.features)}"
    )


def plan_text(
    found: Prepared,
    feature: str = "",
    train: str = "train",
    valid: str = "",
    test: str = "",
    stretch: int = 65536,
    masked: float = 0.0,
) -> Plan:
    """What `text` will read. ValueError: the set has no such feature or split."""
    check_least("stretch", stretch, 1)
    check_share(masked)
    texts = found.of_type("Text")
    preferred = [name for name in TEXTS if name in texts] or texts[: len(texts) == 1]
    chosen = feature or next(iter(preferred), "")
    if chosen not in texts:
        asked = f"no text {chosen!r}" if chosen else "several texts; name one"
        raise ValueError(f"task.feature: {found.name} has {asked}{choices_for(chosen, texts)}")
    splits = _splits(found, train, valid, test)
    sizes = _sizes(found, splits).values()
    fits = sum(stored for _, stored in sizes) <= FITS and sum(count for count, _ in sizes) <= MANY
    return Plan(found, splits, 1, stretch, lambda size: size, chosen, streamed=not fits)


def text(
    found: Prepared,
    feature: str = "",
    train: str = "train",
    valid: str = "",
    test: str = "",
    stretch: int = 65536,
    masked: float = 0.0,
) -> Task:
    """Next-byte prediction on the documents of a set; no window crosses from one into another.

    feature: where an example has its text; by default the one it has, or "text".
    train, valid, test: splits, in TFDS's words.
    stretch: bytes of the test split that are predicted, and of the validation split.
    masked: the share of bytes that are hidden and predicted; 0: the next byte is.
    """
    plan = plan_text(found, feature, train, valid, test, stretch, masked)
    sources = {split: source(found, plan.splits[split]) for split in SPLITS}
    head = max(stretch + 1, SMALLEST)
    limits = {"train": HEAD, "valid": head, "test": head}
    read = {
        split: _joined(sources[split], plan.chosen, limits[split] if plan.streamed else np.inf)
        for split in SPLITS
    }
    facts = {"splits": plan.splits, "examples": {s: len(sources[s]) for s in SPLITS}}
    task = windowed(
        found.name, read, stretch, masked, packed=True, streamed=plan.streamed,
        facts={**facts, "streamed": plan.streamed},
    )  # fmt: skip
    if not plan.streamed:
        return task
    count, stored = _sizes(found, plan.splits)["train"]
    mean = stored / max(1, count)
    return task._replace(feed=feeder(sources["train"], plan.chosen, mean))


def plan_pairs(found: Prepared, train: str = "train", valid: str = "", test: str = "") -> Plan:
    """What `answers` will read. ValueError: the set has no such split, or is too large."""
    texts = found.of_type("Text")
    chosen = next((q, a) for q, a in QUESTIONS.items() if q in texts and a in texts)
    splits = _splits(found, train, valid, test)
    _check_fits(found, splits)
    return Plan(found, splits, 1, None, lambda size: size, chosen)


def answers(found: Prepared, train: str = "train", valid: str = "", test: str = "") -> Task:
    """Answer a question; a size shows the lines of up to so many tokens.

    train, valid, test: splits, in TFDS's words.
    """
    plan = plan_pairs(found, train, valid, test)
    question, answer = plan.chosen
    read = {}
    for split in SPLITS:
        stored = source(found, plan.splits[split])
        rows = (stored[i] for i in range(len(stored)))
        read[split] = [(row[question], row[answer]) for row in rows]
    return pairs.answered(found.name, read, {"splits": plan.splits})


def plan_pictures(
    found: Prepared,
    patch: int = 4,
    order: images.Order = "grid",
    moved: float = 0.1,
    train: str = "train",
    valid: str = "",
    test: str = "",
) -> Plan:
    """What `pictures` will read. ValueError: they do not fit its images, or it is too large."""
    image = _first(found.of_type("Image"), "image")
    label = _first(found.of_type("ClassLabel"), "label")
    shape = found.features[image]["image"].get("shape", {}).get("dimensions", [])
    sides = [int(side) for side in shape[:2]]
    if len(sides) < 2 or sides[0] != sides[1] or sides[0] < 1:
        raise ValueError(
            f"task.name: {found.name} has images of {' x '.join(shape) or 'any'} pixels; they must "
            "be square and all of one size"
        )
    images.check_patch(found.name, sides[0], patch)
    splits = _splits(found, train, valid, test)
    _check_fits(found, splits, each=int(np.prod(np.array(shape, int))))
    own = sides[0] // patch
    return Plan(found, splits, own, None, lambda size: size * size, (image, label))


def pictures(
    found: Prepared,
    patch: int = 4,
    order: images.Order = "grid",
    moved: float = 0.1,
    train: str = "train",
    valid: str = "",
    test: str = "",
) -> Task:
    """Name what an image of a set shows.

    patch: pixels a side of a patch; it divides that of the images.
    order: what a patch's position is: its row and column, or its number, row after row.
    moved: every second training image is moved and stretched by up to this share of its side.
    train, valid, test: splits, in TFDS's words.
    """
    plan = plan_pictures(found, patch, order, moved, train, valid, test)
    image, label = plan.chosen
    pixels, labels = {}, {}
    for split in SPLITS:
        stored = source(found, plan.splits[split])
        rows = [stored[i] for i in range(len(stored))]
        pixels[split] = np.stack([row[image] for row in rows])
        labels[split] = np.array([row[label] for row in rows], np.int32)
    classes = int(found.features[label]["classLabel"]["numClasses"])
    read = images.Images(found.name, pixels, labels, classes)
    return images.classified(read, patch, order, moved)


def _first(names: list[str], usual: str) -> str:
    """The usual name where a set has it, as CIFAR-100 has two kinds of label."""
    return usual if usual in names else names[0]


def _splits(found: Prepared, train: str, valid: str, test: str) -> dict[str, str]:
    """Train, valid and test in TFDS's words."""
    for field, asked in (("train", train), ("valid", valid), ("test", test)):
        if asked or field == "train":
            examples(found, asked, field)
    own_valid = next((name for name in _VALID if name in found.splits), "")
    own_test = "test" if "test" in found.splits else ""
    valid, test, stop = valid or own_valid, test or own_test, 100
    if not test:
        test, stop = f"{train}[{stop - 5}%:{stop}%]", stop - 5
    if not valid:
        valid, stop = f"{train}[{stop - 5}%:{stop}%]", stop - 5
    if stop < 100 and "[" in train:
        raise ValueError(
            f"task.train: {found.name} has no splits for validation and test to go with {train!r}; "
            "name all three"
        )
    return {"train": train if stop == 100 else f"{train}[:{stop}%]", "valid": valid, "test": test}


def _sizes(found: Prepared, splits: Mapping[str, str]) -> dict[str, tuple[int, float]]:
    """Examples of each split, and bytes, about. ValueError: there are none."""
    sizes = {}
    for field, split in splits.items():
        count = examples(found, split, field)
        whole = found.splits[re.split(r"[\[+]", split)[0]]
        sizes[field] = (count, whole.bytes / max(1, whole.examples) * count)
    return sizes


def _check_fits(found: Prepared, splits: Mapping[str, str], each: int | None = None) -> None:
    """ValueError: too much to read at the start; `each`: bytes of an example once it is read."""
    sizes = _sizes(found, splits).values()
    count = sum(count for count, _ in sizes)
    size = count * each if each else sum(stored for _, stored in sizes)
    if size > 4 * FITS or count > MANY:
        raise ValueError(
            f"task.name: {found.name} has {count:,} examples, {size / 2**20:,.0f} MiB; at "
            f"most {MANY:,} and {4 * FITS >> 20:,} MiB are read; take a part as train, valid and "
            "test, such as 'train[:10%]'"
        )


def _joined(examples, feature: str, most: float) -> np.ndarray:
    """The documents, each behind a 0 byte, until there are so many bytes."""
    parts, size = [], 0
    for i in range(len(examples)):
        parts.append(document(examples[i][feature]))
        size += len(parts[-1])
        if size >= most:
            break
    return np.frombuffer(b"".join(parts), np.uint8)
