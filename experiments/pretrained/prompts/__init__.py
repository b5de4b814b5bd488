"""Prompts that hide a key: an opening, filler with a needle in it, a question, its answer.

A prompt is a file in JSON with these five texts; `{key}` stands for the key, of 5 random digits.
The filler is repeated, and "" stands for text that the model has not been trained on. The prompt
`passkey_english` is that of Mohtashami & Jaggi 2023 (arXiv 2305.16300).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from posenc_jax.lab.hosts.files import expanded
from posenc_jax.lab.model.pretrained.tensors import read_json
from posenc_jax.options import FieldError, choices_for

FOLDER = Path(__file__).parent
DIGITS = 5


class Prompt(NamedTuple):
    """The texts of a prompt."""

    opening: str
    filler: str
    needle: str
    question: str
    answer: str


def read(name: str) -> Prompt:
    """The prompt of a name in this folder, or of a path that ends in .json.

    FieldError: no such prompt, or texts that are missing, unknown or without a key. Refused: a file
    that cannot be read.
    """
    names = sorted(path.stem for path in FOLDER.glob("*.json"))
    if name not in names and not name.endswith(".json"):
        raise FieldError("prompts", f"{name!r} is no .json{choices_for(name, names)}")
    texts = read_json(FOLDER / f"{name}.json" if name in names else expanded(name))
    if {*texts} != {*Prompt._fields} or not all(isinstance(t, str) for t in texts.values()):
        raise FieldError("prompts", f"{name}: must have the texts {', '.join(Prompt._fields)}")
    for field in ("needle", "answer"):
        if "{key}" not in texts[field]:
            raise FieldError("prompts", f"{name}: {field} {texts[field]!r} has no {{key}}")
    return Prompt(**texts)


class Hidden(NamedTuple):
    """A prompt as tokens, [T + 1], and how many of the last ones are the answer."""

    id_T: np.ndarray
    answers: int


def hide(
    prompt: Prompt, words: Tokenizer, haystack: Sequence[int], length: int, depth: float, seed: int
) -> Hidden:
    """The prompt, `length` tokens and the last one of the answer, with a random key.

    Args:
      haystack: tokens of text, for a prompt without filler.
      depth: the needle's place in the filler, from 0 to 1.

    FieldError: a prompt that is longer.
    """
    random = np.random.default_rng(seed)
    key = "".join(map(str, random.integers(0, 10, DIGITS)))
    ids = lambda text: words.encode(text.replace("{key}", key), add_special_tokens=False).ids
    opening, needle, question, answer = (
        ids(text) for text in (prompt.opening, prompt.needle, prompt.question, prompt.answer)
    )
    room = length + 1 - sum(map(len, (opening, needle, question, answer)))
    if room < 0:
        reason = f"{prompt.needle!r} with its question needs {-room} tokens more than {length}"
        raise FieldError("prompts", reason)
    filler = list(haystack)
    if prompt.filler:
        filler = ids(prompt.filler)
    else:
        start = int(random.integers(0, max(len(filler) - room, 1)))
        filler = filler[start:]
    filler = (filler * (room // max(len(filler), 1) + 1))[:room]
    cut = round(depth * room)
    whole = [*opening, *filler[:cut], *needle, *filler[cut:], *question, *answer]
    return Hidden(np.array(whole, np.int32), len(answer))
