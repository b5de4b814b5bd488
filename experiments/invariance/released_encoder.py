"""A released encoder in place of the small models of `permutation` and `padding_leakage`."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding as Encoded
from tokenizers import Tokenizer

from experiments.invariance.encoder_config import EncoderConfig
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import make
from posenc_jax.huggingface import own_readers
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.pretrained import Pooling, Pretrained
from posenc_jax.lab.model.pretrained.tensors import Tensors, read_json
from posenc_jax.options import FieldError

TEXT = "stdlib"
WORDS = 8, 24  # of a sentence


class Encoder(NamedTuple):
    """A released encoder, its tokenizer, and how it makes a vector of a text: the mean over tokens
    if its folder does not say it.
    """

    released: Pretrained
    words: Tokenizer
    pooling: Pooling


def folder(model: EncoderConfig) -> Path:
    """The folder of the checkpoint. FieldError: it is in the home folder of an unknown user."""
    try:
        return expanded(model.checkpoint)
    except Refused as error:
        raise FieldError("model.checkpoint", str(error)) from None


def check(model: EncoderConfig) -> None:
    """FieldError: the folder cannot be read, which is found before its weights are."""
    path = folder(model)
    try:
        _check_folder(path)
    except Refused as error:
        raise FieldError("model.checkpoint", str(error)) from None


def _check_folder(path: Path) -> None:
    with inside("model.checkpoint"):
        what = pretrained.released(read_json(path / "config.json"))
        if what.config.kind != "encoder":
            kind = what.config.kind.replace("_", "-")
            raise FieldError("model_type", f"is of a model of kind {kind}; use an encoder")
        if what.patch:
            raise FieldError("model_type", "is of a model of pictures; use an encoder of text")
        pretrained.pooling.read(path)
    pretrained.tokenizer(path)
    Tensors(path)  # refuses files that are missing or cut off


def load(model: EncoderConfig, run: runs.Run) -> Encoder:
    """The encoder; the run notes the digest of its weights."""
    path = folder(model)
    released = pretrained.load(path, states=True)
    digest = hashlib.sha256()
    for file in sorted({*Tensors(path).files.values()}):
        with (path / file).open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    run.fact(checkpoint={"name": path.name, "sha256": digest.hexdigest()})
    pooling = released.pooling or Pooling("mean")
    return Encoder(released, pretrained.tokenizer(path), pooling)


@cache
def text() -> str:
    """The text that sentences are taken of."""
    return bytes(np.asarray(tasks.make(TEXT).data["test"], np.uint8)).decode("utf-8", "replace")


def sentences(words: Tokenizer, count: int) -> list[Encoded]:
    """Sentences, spread evenly over the text, with the tokens that the tokenizer puts around them.

    Refused: the text has fewer.
    """
    lines = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text()))
    whole = [line for line in lines if WORDS[0] <= len(line.split()) <= WORDS[1]]
    if len(whole) < count:
        raise Refused(f"task {TEXT}: {len(whole)} sentences are fewer than {count}")
    step = len(whole) / count
    return [words.encode(whole[int(n * step)]) for n in range(count)]


def table_of(encoding: Encoding) -> tuple[Encoding, int] | None:
    """The learned table of an encoding, and the row of position 0; None: it is another method."""
    first = 0
    if encoding.name == "from_row":
        first = encoding.options["first"]
        encoding = encoding.options["encoding"]
    return (encoding, first) if encoding.name == "learned" else None


def beyond_table(encoding: Encoding, beyond: Any) -> Encoding:
    """The table, which positions past its rows read as `learned` says."""
    table_and_first = table_of(encoding)
    assert table_and_first is not None
    table, first = table_and_first
    other = make("learned", **{**table.options, "beyond": beyond})
    return own_readers.from_row(other, first) if first else other


def without_positions(encoding: Encoding, params: dict) -> tuple[Encoding, dict]:
    """The model without positions: of a table all positions read the mean of its rows, which has
    the size of a row and the vector of token types; of another method nothing.
    """
    if table_of(encoding) is None:
        return make("nope"), {**params, "encoding": {}}
    table_LD = params["encoding"]["table"]
    mean_LD = np.broadcast_to(np.asarray(table_LD).mean(axis=0), table_LD.shape)
    return encoding, {**params, "encoding": {"table": mean_LD}}
