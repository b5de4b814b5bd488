"""Reads a folder of tokens: manifest.json, tokenizer.json, and shards that are mapped into memory.

    manifest.json      what was tokenized, with what, and the SHA-256 of every file
    tokenizer.json     the tokenizer, as Hugging Face's `tokenizers` reads it
    train-00000.bin    ids one after the other, little-endian uint16 or uint32, without a header
    valid-00000.bin, test-00000.bin

The tokens of a split are those of its shards, one after the other. Each document begins with the
separator. What was changed since is refused by one line.
"""

from collections.abc import Iterator, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import looked_in
from posenc_jax.lab.tasks.task import SPLITS
from posenc_jax.lab.tasks.tokens import tokenizer

MANIFEST = "manifest.json"
AT_ONCE = 2**24  # ids that are checked at once


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Shard(_Entry):
    """A file of ids, and its SHA-256."""

    file: str = pydantic.Field(pattern=r"^[a-z0-9-]+\.bin$")
    tokens: int = pydantic.Field(ge=1)
    sha256: str


class Split(_Entry):
    """The shards of a split, in order.

    tokens: with the separators.
    bytes:  of the text; a separator counts as one byte, the 0 byte that begins a document of a
            packed text.
    """

    documents: int
    tokens: int
    bytes: int
    shards: tuple[Shard, ...] = pydantic.Field(min_length=1)


class SourceEntry(_Entry):
    """What was tokenized.

    left_out: files, lines or examples that are empty or not UTF-8 text.
    sha256:   of the SHA-256 of each document, in order.
    """

    name: str
    kind: str
    field: str
    documents: int
    bytes: int
    left_out: int
    sha256: str


class TokenizerEntry(_Entry):
    """The tokenizer.

    trained:    "bpe:SIZE" if it was trained on this text, else "".
    trained_on: bytes of the sample that it was trained on.
    """

    file: Literal["tokenizer.json"]
    sha256: str
    vocab: int
    separator: str
    separator_id: int
    trained: str
    trained_on: int


class Manifest(_Entry):
    """What a folder of tokens holds."""

    format: Literal[1]
    source: SourceEntry
    tokenizer: TokenizerEntry
    dtype: Literal["uint16", "uint32"]
    splits: dict[str, Split]


class Stream:
    """The tokens of a split: arrays one after the other, which may be maps of files."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = arrays
        self._starts = np.cumsum([0, *map(len, arrays)])
        self.dtype = arrays[0].dtype

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, count: int) -> np.ndarray:
        """The `count` tokens from number `start` on; fewer at the end."""
        parts, stop = [], min(start + count, len(self))
        n = int(np.searchsorted(self._starts, start, "right")) - 1
        while start < stop:
            until = min(stop, int(self._starts[n + 1]))
            parts.append(self._arrays[n][start - self._starts[n] : until - self._starts[n]])
            start, n = until, n + 1
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)

    def windows(self, start_N: np.ndarray, count: int) -> np.ndarray:
        """The `count` tokens from each start on, [..., count]."""
        rows_NL = np.stack([self.read(int(start), count) for start in start_N.ravel()])
        return rows_NL.reshape(*start_N.shape, count)


class TokenFolder:
    """The tokens of a folder that `preparing.prepare` wrote."""

    def __init__(self, path: Path):
        """Refused: there is none, the tokenizer is another one, or a shard has another size."""
        self.path, self.manifest = path, read_manifest(path)
        entry = self.manifest.tokenizer
        self.tokenizer = tokenizer.ByteTokenizer(path / tokenizer.FILE, entry.separator)
        actual = self.tokenizer
        if actual.sha256 != entry.sha256:
            raise Refused(
                f"{path / tokenizer.FILE}: not the tokenizer of these tokens: its SHA-256 is "
                f"{actual.sha256[:16]}..., the manifest's {entry.sha256[:16]}..."
            )
        if (actual.vocab, actual.separator) != (entry.vocab, entry.separator_id):
            raise Refused(
                f"{path / MANIFEST}: {entry.vocab} ids with the separator {entry.separator_id}; "
                f"the tokenizer has {actual.vocab} and {actual.separator}"
            )
        for shard in self._shards():
            _check_size(path / shard.file, shard.tokens, self._dtype)

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype(self.manifest.dtype).newbyteorder("<")

    def _shards(self) -> Iterator[Shard]:
        return (shard for split in SPLITS for shard in self.manifest.splits[split].shards)

    def stream(self, split: str) -> Stream:
        """The tokens of a split."""
        shards = self.manifest.splits[split].shards
        return Stream([_mapped(self.path / shard.file, self._dtype) for shard in shards])

    def check(self) -> None:
        """Refused: a shard was changed, or holds an id past the vocabulary. It reads every byte,
        about a gigabyte in a second.
        """
        for shard in self._shards():
            path, vocab = self.path / shard.file, self.manifest.tokenizer.vocab
            if sha256_of(path) != shard.sha256:
                raise Refused(f"{path}: it was changed: its SHA-256 is not that of {MANIFEST}")
            ids = _mapped(path, self._dtype)
            for start in range(0, len(ids), AT_ONCE):
                largest = int(ids[start : start + AT_ONCE].max())
                if largest >= vocab:
                    raise Refused(f"{path}: it holds the id {largest}; the vocabulary has {vocab}")


def read_manifest(path: Path) -> Manifest:
    """The manifest of a folder. Refused: there is none, or it is damaged."""
    file = path / MANIFEST
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(
            f"{path}: no folder of tokens{looked_in(path)}; once, type: "
            f"python scripts/prepare_tokens.py TEXT --tokenizer=bpe:SIZE --out={path}"
        ) from None
    except OSError as error:
        raise Refused(f"{file}: it cannot be read: {error.strerror}") from None
    try:
        manifest = Manifest.model_validate_json(content)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where, reason = ".".join(map(str, first["loc"])), first["msg"].splitlines()[0]
        if not where:
            reason = "it is not JSON" if first["type"] == "json_invalid" else "it is no JSON object"
        raise Refused(": ".join(filter(None, [str(file), where, reason]))) from None
    for split in SPLITS:
        entry = manifest.splits.get(split)
        if entry is None or sum(shard.tokens for shard in entry.shards) != entry.tokens:
            raise Refused(f"{file}: splits.{split}: missing, or not the tokens of its shards")
    return manifest


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file. Refused: it cannot be read."""
    try:
        with path.open("rb") as opened:
            return file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise Refused(f"{path}: it cannot be read: {error.strerror}") from None


def _check_size(path: Path, tokens: int, dtype: np.dtype) -> None:
    """Raises Refused if a shard is missing or has another size."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise Refused(f"{path}: it cannot be read: {error.strerror}") from None
    if size != tokens * dtype.itemsize:
        raise Refused(
            f"{path}: it was changed: {size} bytes; {tokens * dtype.itemsize} were written"
        )


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    return np.memmap(path, dtype, "r")
