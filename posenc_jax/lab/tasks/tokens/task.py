"""Next-token prediction on tokens, scored in bits per byte: `tokens:PATH` and `stdlib_tokens`.

The windows of a size are as in `text_windows.py`: those for tests cover the same tokens, so the
same bytes, at every size, and each document is apart. Training windows follow one another in the
stream without overlap, and each epoch reads them in another order. Row r of step n is window
number permuted(n * batch + r) of the seed and epoch, see `permutation.py`: a run that goes on reads
what it would have read, and each of several processes reads its own rows alone.
"""

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.tasks import corpus
from posenc_jax.lab.tasks.baselines import baselines
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import SPLITS, Feed, Plan, Rows, Task, arrays_sha256, check_least
from posenc_jax.lab.tasks.text_windows import windows
from posenc_jax.lab.tasks.tokens.context import Test, sizes, tested
from posenc_jax.lab.tasks.tokens.permutation import permuted
from posenc_jax.lab.tasks.tokens.shards import Stream, TokenFolder
from posenc_jax.lab.tasks.tokens.tokenizer import ByteTokenizer
from posenc_jax.lab.tasks.user_files import user_path
from posenc_jax.options import FieldError

BLOCKS, BLOCK = 128, 2**16  # parts of the training tokens that baselines are fitted to, and tokens
# A byte-level BPE of 4,096 ids that `scripts/prepare_tokens.py stdlib --tokenizer=bpe:4096` made.
EMBEDDED = Path(__file__).with_name("stdlib_bpe.json")


def tokens(path: str, stretch: int = 65536, test: Test = "windows", context: int = 8192) -> Plan:
    """The tokens of a folder that `scripts/prepare_tokens.py` wrote.

    stretch: tokens of the test split that are predicted, and of the validation split.
    test:    what is tested: windows of the split; or what a model takes from its context, by the
             tests of `context.py`: "same_end", "recall", "recall_absent".
    context: the longest size of these tests.

    FieldError: there is no such folder, or it was changed.
    """
    name = f"tokens:{path}"
    check_least("stretch", stretch, 1)
    folder = _refused_as_field(name, lambda: TokenFolder(user_path(name, path)))
    manifest = folder.manifest
    most = longest_window([manifest.splits[s].tokens for s in SPLITS], stretch)

    def read() -> Task:
        _refused_as_field(name, folder.check)
        streams = {split: folder.stream(split) for split in SPLITS}
        shards = {s: [shard.sha256 for shard in manifest.splits[s].shards] for s in SPLITS}
        facts = {
            "sha256": sha256(repr([manifest.tokenizer.sha256, shards]).encode()).hexdigest(),
            "text_sha256": manifest.source.sha256,
            "tokenizer_sha256": manifest.tokenizer.sha256,
            "shards_sha256": shards,
            "documents": {split: manifest.splits[split].documents for split in SPLITS},
            "bytes": {split: manifest.splits[split].bytes for split in SPLITS},
        }
        return of_streams(name, streams, folder.tokenizer, most, facts, test, context)

    return Plan(*sizes(test, context, most), read, streamed=True)


@register(unit="tokens")
def stdlib_tokens(stretch: int = 65536, test: Test = "windows", context: int = 8192) -> Plan:
    """The text of the Python standard library as tokens of a byte-level BPE of 4,096 ids.

    The splits are those of `stdlib`, and each file is a document of its own. Options as for
    `tokens`.
    """
    check_least("stretch", stretch, 1)
    # The training split, which takes seconds, is longer than the others.
    most = longest_window([len(_standard_library(split)) for split in SPLITS[1:]], stretch)

    def read() -> Task:
        ids = {split: _standard_library(split) for split in SPLITS}
        words = embedded_tokenizer()
        facts = {
            "sha256": arrays_sha256([len(ids[split]) for split in SPLITS], list(ids.values())),
            "tokenizer_sha256": words.sha256,
            "bytes": {s: int(words.lengths_V[ids[s]].sum(dtype=np.int64)) for s in SPLITS},
            "python": platform.python_version(),
        }
        streams = {split: Stream([ids[split]]) for split in SPLITS}
        return of_streams("stdlib_tokens", streams, words, most, facts, test, context)

    return Plan(*sizes(test, context, most), read, streamed=True)


def of_streams(
    name: str,
    streams: Mapping[str, Stream],
    words: ByteTokenizer,
    most: int,
    facts: Mapping[str, Any],
    test: Test = "windows",
    context: int = 8192,
) -> Task:
    """The task of the tokens of three splits.

    Args:
      most: tokens that are predicted of the validation and of the test split.
      facts: facts about the tokens; "bytes" has those of each split.
      test, context: as of `tokens`.
    """
    held_out = {split: streams[split].read(0, most + 1) for split in SPLITS[1:]}
    rate = lambda ids_N: float(words.lengths_V[ids_N].mean())
    per_token = {split: rate(ids[1:]) for split, ids in held_out.items()}
    per_token["train"] = facts["bytes"]["train"] / len(streams["train"])

    def byte_baselines() -> Mapping[str, float]:
        ids = {"train": evenly(streams["train"]), **held_out}
        text = {split: np.frombuffer(words.decode(part), np.uint8) for split, part in ids.items()}
        return baselines(text, len(text["test"]) - 1)

    task = windows(
        name,
        held_out,
        most,
        vocab=words.vocab,
        separator=words.separator,
        baselines=byte_baselines,
        facts={
            "tokens": {split: len(streams[split]) for split in SPLITS},
            "stretch": most,
            "bytes_per_token": per_token,
            **facts,
        },
        feed=feeder(streams["train"]),
        bytes_of_id_V=words.lengths_V,
    )
    if test == "windows":
        return task
    return tested(task, streams, words.separator, test, context, most)


def evenly(stream: Stream) -> np.ndarray:
    """At most BLOCKS * BLOCK tokens of a stream, from all over it: its order may be that of the
    folders of a source, so that the beginning is no sample.
    """
    if len(stream) <= BLOCKS * BLOCK:
        return stream.read(0, len(stream))
    starts = np.linspace(0, len(stream) - BLOCK, BLOCKS).astype(int)
    return np.concatenate([stream.read(int(start), BLOCK) for start in starts])


def feeder(stream: Stream) -> Feed:
    """Returns a function for `Task.feed`, whose rows are windows of the stream."""

    def feed(seeds: Sequence[int], steps: range, batch: int, width: int) -> Rows:
        shape = len(seeds), len(steps), batch, width + 1
        count = (len(stream) - 1) // width

        def fill(seeds_at: slice, steps_at: slice, rows_at: slice) -> np.ndarray:
            step_N1 = np.array(steps[steps_at], np.int64)[:, None]
            row_1B = np.arange(batch, dtype=np.int64)[None, rows_at]
            epoch_NB, index_NB = np.divmod(step_N1 * batch + row_1B, count)
            starts = [width * permuted(index_NB, count, s, epoch_NB) for s in seeds[seeds_at]]
            return stream.windows(np.stack(starts), width + 1)

        return Rows(shape, fill)

    return feed


def longest_window(sizes: Iterable[int], stretch: int) -> int:
    """The longest window, which is also the number of tokens predicted at each size.

    sizes: the tokens of the splits, of which the first one of each is not predicted.
    """
    return min(stretch, min(sizes) - 1)


def _refused_as_field(name: str, read: Callable[[], Any]) -> Any:
    """What `read` returns. FieldError: it was refused."""
    try:
        return read()
    except Refused as error:
        raise FieldError("task.name", f"{name}: {error}") from None


@cache
def embedded_tokenizer() -> ByteTokenizer:
    """The tokenizer of `stdlib_tokens`, which comes with the package."""
    return ByteTokenizer(EMBEDDED)


@cache
def _standard_library(split: str) -> np.ndarray:
    """The tokens of the standard library's text."""
    words = embedded_tokenizer()
    files = [text.decode("utf-8", "replace") for _, text in _files()[split]]
    ids = words.encode([text.replace("\0", " ") for text in files])
    separator = np.array([words.separator], words.dtype)
    return np.concatenate([part for ids_N in ids for part in (separator, ids_N)])


@cache
def _files():
    return corpus.texts(corpus.standard_library())
