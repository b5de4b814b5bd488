"""Tokenizers of Hugging Face's `tokenizers` whose tokens spell the bytes of a text.

Scores are bits per byte, so the bytes of each token must be known, and those of all tokens of a
document must be the document's. This holds for byte-level BPE (GPT-2, Llama 3, Qwen) and for
SentencePiece models with byte fallback that put no space before a text (Gemma). Others change the
text (lower case, a space in front, unknown words) and are refused at the first document.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.lab.hosts.exit_status import Refused, first_line
from posenc_jax.lab.tasks.text_windows import SEPARATOR
from posenc_jax.options import choices_for

FILE = "tokenizer.json"
TRAINED = "bpe:"  # "bpe:8192" stands for a tokenizer of so many ids that is trained on the text
LEAST, MOST = 257, 2**20  # ids of a byte-level BPE: the separator, 256 bytes, pairs
END_OF_TEXT = "<|endoftext|>"
# Special tokens that begin or end a document, of GPT-2, Llama, Gemma, BERT and their like.
SEPARATORS = (END_OF_TEXT, "<|end_of_text|>", "<|begin_of_text|>", "<eos>", "</s>", "<bos>",
              "<s>", "[EOS]", "[SEP]")  # fmt: skip
PIECE = 2**20  # characters that are tokenized at once, of a longer document piece by piece


class ByteTokenizer:
    """A tokenizer, and the bytes that each of its ids stands for.

    vocab:       the largest id, plus 1.
    separator:   the id before each document; it stands for the 0 byte that begins a document of
                 `text_windows`.
    bytes_of_id: the bytes of each id; b"" of special tokens, which text never becomes.
    sha256:      of the file.
    """

    def __init__(self, path: Path, separator: str = ""):
        """Refused: there is no tokenizer.json, it is damaged, its tokens do not spell bytes, or
        there is no such special token.

        separator: by default the first of SEPARATORS that the tokenizer has.
        """
        self._name = name = str(path)
        self._tokenizer, content = read_tokenizer(path)
        # A document may contain the text of a special token; it stays text.
        self._tokenizer.encode_special_tokens = True
        self.sha256 = sha256(content).hexdigest()
        added = self._tokenizer.get_added_tokens_decoder()
        special = {token.content: id for id, token in added.items() if token.special}
        self.separator_token = separator_token(name, separator, special)
        self.separator = special[self.separator_token]
        self.bytes_of_id = _bytes_of_ids(name, self._tokenizer, content)
        self.bytes_of_id[self.separator] = SEPARATOR
        self.vocab = len(self.bytes_of_id)
        self.lengths_V = np.array([len(spelled) for spelled in self.bytes_of_id], np.int32)

    @property
    def dtype(self) -> np.dtype:
        """The smallest unsigned type that holds every id, of the byte order of shards."""
        return np.dtype("<u2" if self.vocab <= 2**16 else "<u4")

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, without a separator. Refused: they do not spell a text."""
        parts = [list(pieces(text)) for text in texts]
        flat = [part for text in parts for part in text]
        try:
            encoded = self._tokenizer.encode_batch_fast(flat, add_special_tokens=False)
        except BaseException as error:  # Exception itself, or a panic, which is no Exception
            _raise_unless_ours(error)
            raise Refused(f"{self._name}: the tokenizer fails: {first_line(error)}") from None
        encodings, ids = iter(encoded), []
        for text in parts:
            ids.append(np.array([id for _ in text for id in next(encodings).ids], self.dtype))
        for text, ids_N in zip(texts, ids, strict=True):
            self._check(text, ids_N)
        return ids

    def decode(self, ids_N: np.ndarray) -> bytes:
        """The bytes that ids stand for."""
        return b"".join(map(self.bytes_of_id.__getitem__, ids_N.tolist()))

    def _check(self, text: str, ids_N: np.ndarray) -> None:
        """Raises Refused if the ids do not spell the text."""
        spelled, wanted = self.decode(ids_N), text.encode()
        if spelled != wanted:
            both = zip(spelled, wanted, strict=False)
            at = next(
                (n for n, (a, b) in enumerate(both) if a != b), min(len(spelled), len(wanted))
            )
            near = slice(max(at - 8, 0), at + 8)
            raise Refused(
                f"{self._name}: its tokens spell {spelled[near]!r} for the text {wanted[near]!r}; "
                "bits per byte need a tokenizer that keeps every byte, such as a byte-level BPE"
            )


def separator_token(name: str, separator: str, special: Collection[str]) -> str:
    """The token before each document: `separator`, or by default the first of SEPARATORS that is
    among the special tokens of the tokenizer `name`. Refused: there is no such token.
    """
    token = separator or next((usual for usual in SEPARATORS if usual in special), "")
    if token not in special:
        problem = f"no special token {separator!r}" if separator else "no usual separator"
        raise Refused(f"{name}: {problem} for --separator{choices_for(separator, special)}")
    return token


def read_tokenizer(path: Path) -> tuple[Any, bytes]:
    """The `Tokenizer` of a tokenizer.json, which neither cuts nor pads a text, and the file.

    Refused: it cannot be read, or is damaged.
    """
    from tokenizers import Tokenizer  # a tenth of a second

    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refused(f"{path}: it cannot be read: {error.strerror}") from None
    try:
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode("")
    except BaseException as error:
        _raise_unless_ours(error)
        raise Refused(f"{path}: {first_line(error)}") from None
    return tokenizer, content


def train_bpe(texts: Iterable[str], size: int) -> bytes:
    """The tokenizer.json of a byte-level BPE of at most `size` ids, trained on texts.

    Words are those of GPT-2's pattern. Id 0 is the separator, ids 1 to 256 are the bytes. The same
    texts give the same tokenizer. A short text gives fewer ids: pairs that occur once are not
    merged.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str().encode()


def trained_size(name: str) -> int | None:
    """The number of ids of "bpe:SIZE"; None for a path. Refused: it is no such number."""
    if not name.startswith(TRAINED):
        return None
    size = name.removeprefix(TRAINED)
    if not size.isdecimal() or not LEAST <= int(size) <= MOST:
        raise Refused(f"--tokenizer: {name!r} is not {TRAINED}SIZE; give {LEAST} to {MOST} ids")
    return int(size)


def pieces(text: str, most: int = PIECE) -> Iterator[str]:
    """The text in parts of at most `most` characters, each cut after a line if it has one.

    It depends on the text alone, so a document has the same tokens whatever is read with it.
    """
    start = 0
    while len(text) - start > most:
        stop = text.rfind("\n", start, start + most) + 1
        stop = stop if stop > start else start + most
        yield text[start:stop]
        start = stop
    yield text[start:]


def _bytes_of_ids(name: str, tokenizer: Any, content: bytes) -> list[bytes]:
    """The bytes that each id stands for. Refused: the tokens do not spell bytes."""
    tokens = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    spelled = _spelling(name, json.loads(content))
    table = [b""] * (max(tokens.values(), default=-1) + 1)
    for token, id in tokens.items():
        if id not in added:
            table[id] = spelled(token)
        elif not added[id].special:
            table[id] = added[id].content.encode()
    return table


def _spelling(name: str, stored: Mapping[str, Any]):
    """The function from a token, as it is stored, to the bytes that it stands for."""
    kinds = {kind for part in ("pre_tokenizer", "decoder") for kind in _kinds(stored.get(part))}
    if "ByteLevel" in kinds:
        return lambda token: _from_letters(token)
    if "ByteFallback" in kinds:
        return _from_piece
    model = stored.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    raise Refused(
        f"{name}: a {kind or 'tokenizer'} whose tokens do not spell the bytes of a text; give a "
        "byte-level BPE, or a SentencePiece model with byte fallback"
    )


def _kinds(part: Any) -> Iterator[str]:
    """The types of a part of a tokenizer.json, and of the parts of a sequence."""
    if isinstance(part, dict):
        yield str(part.get("type"))
        for inner in [*part.get("decoders", ()), *part.get("pretokenizers", ())]:
            yield from _kinds(inner)


def _letters() -> dict[str, int]:
    """The letter that stands for each byte in a byte-level BPE: itself if it can be printed, else
    one of 256 and more.
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + n): b for n, b in enumerate(hidden)}


_LETTERS = _letters()


def _from_letters(token: str) -> bytes:
    if all(letter in _LETTERS for letter in token):
        return bytes(_LETTERS[letter] for letter in token)
    return token.encode()


def _from_piece(token: str) -> bytes:
    byte = re.fullmatch("<0x([0-9A-Fa-f]{2})>", token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


def _raise_unless_ours(error: BaseException) -> None:
    """Raises an interrupt again, which is no fault of the tokenizer."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
