"""Tasks made of prepared TFDS sets, by what a set holds.

    a set holds                its task                                            a size counts
    images with labels         image classification, `images.py`                   patches a side
    a question and its answer  the answer in bytes, `question_answer.py`           tokens
    text                       the next byte of documents, `text_windows.py`       bytes

Splits are the set's own. A set without a validation or test split lends the last 5% of what is left
of its training split for each. The options `train`, `valid` and `test` name other splits, as TFDS
writes them: "train[:10%]".

A set of up to FITS bytes and MANY examples is read once at the start and kept on the device, like
the standard library. The training windows of a larger text are read step by step, see
`streamed_text.py`.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from posenc_jax.lab.tasks import images, question_answer
from posenc_jax.lab.tasks.masked import check_share
from posenc_jax.lab.tasks.streamed_text import feeder
from posenc_jax.lab.tasks.task import Plan, Task, check_least
from posenc_jax.lab.tasks.text_windows import SMALLEST, SPLITS, document, windowed
from posenc_jax.lab.tasks.tfds_folder import Prepared, examples, source
from posenc_jax.options import FieldError, choices_for

FITS, MANY = 2**28, 200_000  # an example takes about 70 microseconds to read: 15 seconds at most
HEAD = 2**23  # bytes of a larger text that its baselines are fitted to
QUESTIONS = {"commands": "actions", "question": "answer"}
TEXTS = ("text", "book_text")  # the feature to read where a set has several texts
_VALID = ("validation", "valid", "val", "dev")


def task_of(found: Prepared) -> Callable[..., Plan]:
    """The function that makes the task of a set, by what it holds. FieldError: nothing known."""
    if found.of_type("Image") and found.of_type("ClassLabel"):
        return pictures
    texts = found.of_type("Text")
    if any(question in texts and answer in texts for question, answer in QUESTIONS.items()):
        return answers
    if texts:
        return text
    raise FieldError(
        "task.name",
        f"{found.name} holds no text and no images with labels; its features: "
        f"{', '.join(found.features)}",
    )


def text(
    found: Prepared,
    feature: str = "",
    train: str = "train",
    valid: str = "",
    test: str = "",
    stretch: int = 65536,
    masked: float = 0.0,
) -> Plan:
    """Next-byte prediction on the documents of a set; no window crosses from one into another.

    feature: the feature that holds the text; by default the only text, or "text".
    train, valid, test: splits, as TFDS writes them.
    stretch: bytes of the test split that are predicted, and of the validation split.
    masked: the share of bytes that are hidden and predicted; 0: the next byte is predicted.

    FieldError: the set has no such feature or split.
    """
    check_least("stretch", stretch, 1)
    check_share(masked)
    texts = found.of_type("Text")
    preferred = [name for name in TEXTS if name in texts] or texts[: len(texts) == 1]
    chosen = feature or next(iter(preferred), "")
    if chosen not in texts:
        asked = f"no text {chosen!r}" if chosen else "several texts; name one"
        raise FieldError("task.feature", f"{found.name} has {asked}{choices_for(chosen, texts)}")
    splits = _splits(found, train, valid, test)
    sizes = _sizes(found, splits).values()
    fits = sum(stored for _, stored in sizes) <= FITS and sum(count for count, _ in sizes) <= MANY
    read = partial(_read_text, found, splits, chosen, stretch, masked, not fits)
    return Plan(1, stretch, lambda size: size, read, streamed=not fits)


def _read_text(
    found: Prepared,
    splits: dict[str, str],
    feature: str,
    stretch: int,
    masked: float,
    streamed: bool,
) -> Task:
    sources = {split: source(found, splits[split]) for split in SPLITS}
    head = max(stretch + 1, SMALLEST)
    limits = {"train": HEAD, "valid": head, "test": head}
    read = {
        split: _joined(sources[split], feature, limits[split] if streamed else np.inf)
        for split in SPLITS
    }
    facts = {"splits": splits, "examples": {s: len(sources[s]) for s in SPLITS}}
    task = windowed(
        found.name, read, stretch, masked, packed=True, streamed=streamed,
        facts={**facts, "streamed": streamed},
    )  # fmt: skip
    if not streamed:
        return task
    count, stored = _sizes(found, splits)["train"]
    return task._replace(feed=feeder(sources["train"], feature, stored / max(1, count)))


def answers(found: Prepared, train: str = "train", valid: str = "", test: str = "") -> Plan:
    """Answer a question; a size is the set of all lines of up to so many tokens.

    train, valid, test: splits, as TFDS writes them.

    FieldError: the set has no such split, or is too large.
    """
    splits = _splits(found, train, valid, test)
    _check_fits(found, splits)
    return Plan(1, None, lambda size: size, partial(_read_answers, found, splits))


def _read_answers(found: Prepared, splits: dict[str, str]) -> Task:
    texts = found.of_type("Text")
    question, answer = next((q, a) for q, a in QUESTIONS.items() if q in texts and a in texts)
    read = {}
    for split in SPLITS:
        stored = source(found, splits[split])
        rows = (stored[i] for i in range(len(stored)))
        read[split] = [(row[question], row[answer]) for row in rows]
    return question_answer.answered(found.name, read, {"splits": splits})


def pictures(
    found: Prepared,
    patch: int = 4,
    order: images.Order = "grid",
    moved: float = 0.1,
    train: str = "train",
    valid: str = "",
    test: str = "",
) -> Plan:
    """Classify the images of a set.

    patch: pixels a side of a patch; it divides the side of the images.
    order: positions are row and column ("grid"), or the number of the patch, row by row ("line").
    moved: every second training image is moved and stretched by up to this share of its side.
    train, valid, test: splits, as TFDS writes them.

    FieldError: the images are not squares of one size, the patches do not fill them, the set has no
    such split, or it is too large.
    """
    image = _first(found.of_type("Image"), "image")
    shape = found.features[image]["image"].get("shape", {}).get("dimensions", [])
    sides = [int(side) for side in shape[:2]]
    if len(sides) < 2 or sides[0] != sides[1] or sides[0] < 1:
        raise FieldError(
            "task.name",
            f"{found.name} has images of {' x '.join(shape) or 'any'} pixels; they must be square "
            "and all of one size",
        )
    images.check_patch(found.name, sides[0], patch)
    splits = _splits(found, train, valid, test)
    _check_fits(found, splits, each=int(np.prod(np.array(shape, int))))
    read = partial(_read_pictures, found, splits, image, patch, order, moved)
    return Plan(sides[0] // patch, None, lambda size: size * size, read)


def _read_pictures(
    found: Prepared,
    splits: dict[str, str],
    image: str,
    patch: int,
    order: images.Order,
    moved: float,
) -> Task:
    label = _first(found.of_type("ClassLabel"), "label")
    pixels, labels = {}, {}
    for split in SPLITS:
        stored = source(found, splits[split])
        rows = [stored[i] for i in range(len(stored))]
        pixels[split] = np.stack([row[image] for row in rows])
        labels[split] = np.array([row[label] for row in rows], np.int32)
    classes = int(found.features[label]["classLabel"]["numClasses"])
    read = images.Images(found.name, pixels, labels, classes)
    return images.classified(read, patch, order, moved)


def _first(names: list[str], usual: str) -> str:
    """The usual name if the set has it, else its first: CIFAR-100 has two kinds of label."""
    return usual if usual in names else names[0]


def _splits(found: Prepared, train: str, valid: str, test: str) -> dict[str, str]:
    """The splits for train, valid and test, as TFDS writes them. FieldError: no such split."""
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
        raise FieldError(
            "task.train",
            f"{found.name} has no splits for validation and test to go with {train!r}; name all "
            "three",
        )
    return {"train": train if stop == 100 else f"{train}[:{stop}%]", "valid": valid, "test": test}


def _sizes(found: Prepared, splits: Mapping[str, str]) -> dict[str, tuple[int, float]]:
    """(examples, approximate bytes) of each split. FieldError: it holds no examples."""
    sizes = {}
    for field, split in splits.items():
        count = examples(found, split, field)
        whole = found.splits[re.split(r"[\[+]", split)[0]]
        sizes[field] = (count, whole.bytes / max(1, whole.examples) * count)
    return sizes


def _check_fits(found: Prepared, splits: Mapping[str, str], each: int | None = None) -> None:
    """FieldError: too large to read at the start; `each`: bytes of one example in memory."""
    sizes = _sizes(found, splits).values()
    count = sum(count for count, _ in sizes)
    size = count * each if each else sum(stored for _, stored in sizes)
    if size > 4 * FITS or count > MANY:
        raise FieldError(
            "task.name",
            f"{found.name} has {count:,} examples, {size / 2**20:,.0f} MiB; at most {MANY:,} and "
            f"{4 * FITS >> 20:,} MiB are read; take a part as train, valid and test, such as "
            "'train[:10%]'",
        )


def _joined(examples, feature: str, most: float) -> np.ndarray:
    """Documents, each after a 0 byte, until there are `most` bytes."""
    parts, size = [], 0
    for i in range(len(examples)):
        parts.append(document(examples[i][feature]))
        size += len(parts[-1])
        if size >= most:
            break
    return np.frombuffer(b"".join(parts), np.uint8)
