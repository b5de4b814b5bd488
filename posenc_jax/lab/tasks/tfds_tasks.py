"""Tasks made of prepared TFDS sets, chosen by what a set holds.

    a set holds                its task                                            a size counts
    images with labels         image classification, `images.py`                   patches a side
    a question and its answer  the answer in bytes, `question_answer.py`           tokens
    text                       the next byte of documents, `text_windows.py`       bytes

The options `train`, `valid` and `test` name splits as TFDS writes them: "train[:10%]". By default
they are the set's own. A set without a validation or test split gives the last 5% of the rest of
its training split for each.

A set of up to FITS bytes and MANY examples is read once at the start and kept on the device, like
the standard library. The training windows of a larger text are read step by step, see
`streamed_text.py`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab.tasks import images, question_answer
from posenc_jax.lab.tasks.labelled_text import labelled_texts
from posenc_jax.lab.tasks.streamed_text import feeder
from posenc_jax.lab.tasks.task import SPLITS, Plan, Task
from posenc_jax.lab.tasks.text_windows import SMALLEST, check_options, document, windowed
from posenc_jax.lab.tasks.tfds_folder import Prepared
from posenc_jax.options import FieldError, choices_for

FITS, MANY = 2**28, 200_000  # an example takes about 70 microseconds to read: 15 seconds at most
HEAD = 2**23  # bytes of a larger text that its baselines are fitted to
QUESTIONS = {"commands": "actions", "question": "answer"}
TEXTS = ("text", "book_text")  # the feature to read if a set has several texts
VALID_NAMES = ("validation", "valid", "val", "dev")


class Part(NamedTuple):
    """A split in TFDS's notation, its number of examples, and about how many bytes it has."""

    split: str
    examples: int
    bytes: float


def task_builder(prepared: Prepared) -> Callable[..., Plan]:
    """The function that makes the task of a set. FieldError: no task fits what the set holds."""
    if prepared.features_of_type("Image") and prepared.features_of_type("ClassLabel"):
        return pictures
    texts = prepared.features_of_type("Text")
    if any(question in texts and answer in texts for question, answer in QUESTIONS.items()):
        return answers
    if texts:
        return text
    raise FieldError(
        "task.name",
        f"{prepared.name} holds no text and no images with labels; its features: "
        f"{', '.join(sorted(prepared.builder.info.features))}",
    )


def text(
    prepared: Prepared,
    feature: str = "",
    train: str = "train",
    valid: str = "",
    test: str = "",
    stretch: int = 65536,
    masked: float = 0.0,
) -> Plan:
    """Next-byte prediction on the documents of a set; no token attends to another document.

    feature: the feature that holds the text; by default the only text, or "text".
    stretch, masked: see `corpus.stdlib`.

    FieldError: the set has no such feature or split.
    """
    check_options(stretch, masked)
    chosen = text_feature(prepared, feature)
    parts = _parts(prepared, train, valid, test)
    count, size = _total(parts)
    streamed = size > FITS or count > MANY

    def read() -> Task:
        sources = _sources(prepared, parts)
        head = max(stretch + 1, SMALLEST)
        limits = (HEAD, head, head) if streamed else (np.inf,) * 3
        joined = {
            split: _joined(sources[split], chosen, limit)
            for split, limit in zip(SPLITS, limits, strict=True)
        }
        mean = parts["train"].bytes / parts["train"].examples
        feed = feeder(sources["train"], chosen, mean) if streamed else None
        lengths = {field: len(rows) for field, rows in sources.items()}
        facts = {"splits": _names(parts), "examples": lengths, "streamed": streamed}
        return windowed(prepared.name, joined, stretch, masked, packed=True, feed=feed, facts=facts)

    return Plan(1, stretch, read, streamed=streamed)


def answers(prepared: Prepared, train: str = "train", valid: str = "", test: str = "") -> Plan:
    """Predict the answer to a question; a size stands for all lines of up to so many tokens.

    FieldError: the set has no such split, or is too large.
    """
    parts = _parts(prepared, train, valid, test)
    _check_fits(prepared, parts)
    texts = prepared.features_of_type("Text")
    question, answer = next((q, a) for q, a in QUESTIONS.items() if q in texts and a in texts)

    def read() -> Task:
        pairs = {
            split: [(row[question], row[answer]) for row in rows]
            for split, rows in _sources(prepared, parts).items()
        }
        return question_answer.answered(prepared.name, pairs, {"splits": _names(parts)})

    return Plan(1, None, read)


def labels(
    prepared: Prepared, feature: str = "", train: str = "train", valid: str = "", test: str = ""
) -> Plan:
    """Tell the label of a text of a set; a size is the number of bytes that are read of it.

    feature: the feature that holds the text; by default the only text, or "text".

    FieldError: the set has no class label, no such text or split, or it is too large.
    """
    named = prepared.features_of_type("ClassLabel")
    if not named:
        raise FieldError("task.name", f"{prepared.name} has no class label")
    label, chosen = _first(named, "label"), text_feature(prepared, feature)
    parts = _parts(prepared, train, valid, test)
    _check_fits(prepared, parts)

    def read() -> Task:
        texts = {
            split: [(bytes(row[chosen]), int(row[label])) for row in rows]
            for split, rows in _sources(prepared, parts).items()
        }
        facts = {"splits": _names(parts), "labels": prepared.builder.info.features[label].names}
        return labelled_texts(f"labels:{prepared.name}", texts, facts)

    return Plan(1, None, read, width=lambda size: size + 1)


def pictures(
    prepared: Prepared,
    patch: int = 4,
    order: images.Order = "grid",
    moved: float = 0.1,
    train: str = "train",
    valid: str = "",
    test: str = "",
) -> Plan:
    """Classify the images of a set.

    patch, order, moved: see `images.digits`.

    FieldError: the images are not squares of one size, the patches do not fill them, the set has no
    such split, or it is too large.
    """
    features = prepared.builder.info.features
    image = _first(prepared.features_of_type("Image"), "image")
    label = _first(prepared.features_of_type("ClassLabel"), "label")
    shape = features[image].shape
    side = shape[0]
    if side is None or shape[1] != side:
        raise FieldError(
            "task.name",
            f"{prepared.name} has images of {' x '.join(map(str, shape))} pixels; they must be "
            "square and all of one size",
        )
    images.check_patch(prepared.name, side, patch)
    parts = _parts(prepared, train, valid, test)
    _check_fits(prepared, parts, example_bytes=int(np.prod(shape)))

    def read() -> Task:
        splits = {}
        for split, source in _sources(prepared, parts).items():
            pixels, labels = zip(*((row[image], row[label]) for row in source), strict=True)
            splits[split] = {"pixels": np.stack(pixels), "labels": np.array(labels, np.int32)}
        stored = images.Images(prepared.name, splits, features[label].num_classes)
        task = images.classified(stored, patch, order, moved)
        return task._replace(facts={**task.facts, "labels": features[label].names})

    return Plan(side // patch, None, read, width=lambda size: size * size)


def text_feature(prepared: Prepared, feature: str) -> str:
    """The feature `feature`, or by default the only text, or the usual one. FieldError: there is no
    such text.
    """
    texts = prepared.features_of_type("Text")
    preferred = [name for name in TEXTS if name in texts] or texts[: len(texts) == 1]
    chosen = feature or next(iter(preferred), "")
    if chosen not in texts:
        problem = f"no text {chosen!r}" if chosen else "several texts; name one"
        raise FieldError(
            "task.feature", f"{prepared.name} has {problem}{choices_for(chosen, texts)}"
        )
    return chosen


def _first(names: list[str], usual: str) -> str:
    """The usual name if the set has it, else the first name: CIFAR-100 has two kinds of label."""
    return usual if usual in names else names[0]


def _parts(prepared: Prepared, train: str, valid: str, test: str) -> dict[str, Part]:
    """The parts of a set for train, valid and test.

    FieldError: the set has no such split, or a split holds no examples.
    """
    splits, stop = prepared.builder.info.splits, 100
    test = test or ("test" if "test" in splits else "")
    valid = valid or next((name for name in VALID_NAMES if name in splits), "")
    if not test:
        test, stop = f"{train}[{stop - 5}%:{stop}%]", stop - 5
    if not valid:
        valid, stop = f"{train}[{stop - 5}%:{stop}%]", stop - 5
    if stop < 100:
        if "[" in train:
            raise FieldError(
                "task.train",
                f"{prepared.name} has no splits for validation and test to go with {train!r}; name "
                "all three",
            )
        train = f"{train}[:{stop}%]"
    named = zip(SPLITS, (train, valid, test), strict=True)
    return {field: _part(prepared, field, split) for field, split in named}


def _part(prepared: Prepared, field: str, split: str) -> Part:
    """The part of a set that `split` names. FieldError: there is no such split, TFDS cannot read
    it, or it holds no examples.
    """
    splits, base = prepared.builder.info.splits, re.split(r"[\[+]", split)[0]
    if base not in splits:
        reason = f"{prepared.name} has no split {base!r}{choices_for(base, splits)}"
        raise FieldError(("task", field), reason)
    try:
        count = splits[split].num_examples
    except Exception as error:  # TFDS raises errors of any type for a split that it cannot read
        said = " ".join(str(error.args[0] if error.args else error).split())
        raise FieldError(("task", field), f"{split!r} of {prepared.name}: {said}") from None
    if count < 1:
        raise FieldError(("task", field), f"{split!r} of {prepared.name} holds no examples")
    whole = splits[base]
    return Part(split, count, whole.num_bytes / max(1, whole.num_examples) * count)


def _names(parts: Mapping[str, Part]) -> dict[str, str]:
    """The TFDS split of each part."""
    return {field: part.split for field, part in parts.items()}


def _total(parts: Mapping[str, Part]) -> tuple[int, float]:
    """The examples and the bytes of all parts."""
    return sum(p.examples for p in parts.values()), sum(p.bytes for p in parts.values())


def _check_fits(
    prepared: Prepared, parts: Mapping[str, Part], example_bytes: int | None = None
) -> None:
    """Raises a FieldError for parts that are too large to be read at the start.

    example_bytes: of one example in memory; None: as on disk.
    """
    count, size = _total(parts)
    size = count * example_bytes if example_bytes else size
    if size > 4 * FITS or count > MANY:
        raise FieldError(
            "task.name",
            f"{prepared.name} has {count:,} examples, {size / 2**20:,.0f} MiB; at most {MANY:,} "
            f"and {4 * FITS >> 20:,} MiB are read; take a part as train, valid and test, such as "
            "'train[:10%]'",
        )


def _sources(prepared: Prepared, parts: Mapping[str, Part]) -> dict[str, Any]:
    """The examples of each part, with random access."""
    return {field: prepared.builder.as_data_source(part.split) for field, part in parts.items()}


def _joined(examples: Iterable[Mapping], feature: str, most: float) -> np.ndarray:
    """The documents, each after a 0 byte, until there are at least `most` bytes."""
    parts, size = [], 0
    for example in examples:
        parts.append(document(example[feature]))
        size += len(parts[-1])
        if size >= most:
            break
    return np.frombuffer(b"".join(parts), np.uint8)
