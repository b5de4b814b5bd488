"""Tensors in safetensors files, one file or several with an index; a pickle is never opened.

Files come from anyone. What is wrong with them is one line, no name in them leads out of their
folder, and JSON of more than `MOST_BYTES` is not read.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from posenc_jax.lab.hosts.exit_status import Refused, first_line
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.options import field_name, shown

MOST_BYTES = 100 * 10**6  # as much as safetensors reads of a header; the largest index known has 20
DTYPES = "F64", "F32", "F16", "BF16"
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Names that files have had for the same tensor.
OLD = (
    ("LayerNorm.weight", "LayerNorm.gamma"),
    ("LayerNorm.bias", "LayerNorm.beta"),
    ("cls.predictions.transform", "lm_predictions.lm_head"),
    ("cls.predictions", "lm_predictions.lm_head"),
)
BARE = re.compile(r"^(transformer|bert|roberta|deberta|gpt_neox|model|vision_model)\.")
# Masks and frequencies, which are no weights, and heads for other tasks.
OTHERS = re.compile(
    r"inv_freq$|attn\.(masked_)?bias$|attention\.(masked_)?bias$|position_ids$|pooler\."
    r"|cls\.seq_relationship|mask_predictions\.|EncDecAttention\.relative_attention_bias\.weight$"
)
# Second copies of the embedding, or of the read-out's bias.
COPIES = re.compile(r"(lm_head|embed_out|decoder|embed_tokens)\.(weight|bias)$")


class Tensors:
    """The tensors of a folder. One file is open at a time, and `read` returns one tensor.

    Refused: no such files, or a file that is damaged.
    """

    def __init__(self, folder: Path):
        self.folder, self._open, self._handle = folder, None, None
        if (folder / INDEX).is_file():
            self.files = _checked_index(folder / INDEX)
        elif (folder / FILE).is_file():
            self.files = dict.fromkeys(self._names(FILE), FILE)
        else:
            pickled = "; a pickle is never opened" if list(folder.glob("*.bin")) else ""
            raise Refused(f"{folder}: neither {FILE} nor {INDEX}{pickled}")
        for file in sorted(set(self.files.values())):
            with _named(folder / file):
                _check_regular(folder / file)
                safe_open(folder / file, "numpy")  # refuses a file that is cut off

    def _names(self, file: str) -> list[str]:
        _check_regular(self.folder / file)
        with _named(self.folder / file):
            return list(safe_open(self.folder / file, "numpy").keys())

    def known(self, name: str) -> str | None:
        """The name that the folder has for this tensor; None: it has none."""
        candidates = [name, *(name.replace(*pair) for pair in OLD)]
        candidates += [BARE.sub("", candidate) for candidate in candidates]
        return next((candidate for candidate in candidates if candidate in self.files), None)

    def find(self, name: str) -> str:
        """The name that the folder has for this tensor. Refused: it has none."""
        match = self.known(name)
        if match is None:
            raise Refused(f"{self.folder}: no tensor {name}, which the model of its config needs")
        return match

    def read(self, name: str) -> np.ndarray:
        """The tensor of this name. Refused: it is damaged, or not of floating-point numbers."""
        file = self.files[name]
        with _named(self.folder / file):
            if self._open != file:
                self._open, self._handle = file, safe_open(self.folder / file, "numpy")
            assert self._handle is not None
            if (dtype := self._handle.get_slice(name).get_dtype()) not in DTYPES:
                raise Refused(f"{self.folder}: tensor {field_name((name,))} has the dtype {dtype}; "
                              f"choices: {', '.join(DTYPES)}")  # fmt: skip
            return self._handle.get_tensor(name)

    def not_finite(self, names: Iterable[str]) -> Refused:
        """The error for arrays with NaN or infinity that were made of these tensors."""
        for name in names:
            tensor = self.read(name)
            if (count := int(tensor.size - np.isfinite(tensor).sum())) > 0:
                return Refused(f"{self.folder}: tensor {field_name((name,))} has {count} values "
                               f"of {tensor.size} that are NaN or infinite")  # fmt: skip
        listed = ", ".join(field_name((name,)) for name in names)
        return Refused(
            f"{self.folder}: tensor {listed}: values are too large for the model's dtype"
        )

    def differ(self, *names: str) -> bool:
        """Whether the folder has both of these tensors, and they differ."""
        return {*names} <= {*self.files} and not _same(*map(self.read, names))

    def check_all_read(
        self, read: Iterable[str], embedding: str | None, bias: str | None, beside: str = ""
    ) -> None:
        """Checks that tensors which were not read would change nothing.

        Args:
          embedding, bias: of the names read, those of the embedding and of the read-out's bias.
          beside: a pattern of tensors that are not of the model.

        Refused: weights that the model does not have; a copy that differs from what it copies.
        """
        for name in sorted(set(self.files) - set(read)):
            if OTHERS.search(name) or (beside and re.search(beside, name)):
                continue
            copied = COPIES.search(name)
            original = {"weight": embedding, "bias": bias}[copied[2]] if copied else None
            if original is None:
                raise Refused(f"{self.folder}: tensor {field_name((name,))}: the model of its "
                              "config has no such weights")  # fmt: skip
            if not _same(self.read(name), self.read(original)):
                raise Refused(f"{self.folder}: tensor {field_name((name,))} differs from "
                              f"{original}, which the config says it is")  # fmt: skip


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays are equal; NaN is equal to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def read_json(path: Path) -> dict[str, Any]:
    """Reads a dictionary from a JSON file.

    Refused: there is no such file, it has more than `MOST_BYTES`, or it is not a dictionary in
    JSON; a name that stands twice in one dictionary.
    """
    if not isinstance(content := _content(path), dict):
        raise Refused(f"{path}: not a dictionary")
    return content


def read_list(path: Path) -> list[dict[str, Any]]:
    """Reads a list of dictionaries from a JSON file. Refused: as `read_json`."""
    content = _content(path)
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise Refused(f"{path}: not a list of dictionaries")
    return content


def _content(path: Path) -> Any:
    """What a JSON file has. Refused: see `read_json`."""
    try:
        _check_regular(path)
        if (size := path.stat().st_size) > MOST_BYTES:
            raise Refused(f"{path}: {size} bytes are more than {MOST_BYTES}")
        return json.loads(path.read_text("utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise error if isinstance(error, Refused) else Refused(f"{path}: {error}") from None
    except RecursionError:
        raise Refused(f"{path}: is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dictionary of these pairs. ValueError: a name occurs twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise ValueError(f"{shown(twice)} stands there twice")
    return content


def _check_regular(path: Path) -> None:
    """Raises Refused for a pipe or a device, reading which may never end."""
    if path.exists() and not path.is_file():
        raise Refused(f"{path}: is not a file")


def _checked_index(path: Path) -> dict[str, str]:
    """{tensor: file} of an index. Refused: anything else, or a file outside of the folder."""
    files = read_json(path).get("weight_map", {})
    if not isinstance(files, dict):
        raise Refused(f"{path}: weight_map: {shown(files)} is not a dictionary")
    for name, file in files.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]{1,255}", file, re.ASCII):
            where = field_name(("weight_map", name))
            raise Refused(f"{path}: {where}: {shown(file)} is not the name of a file beside it")
    return files


def write_tensors(folder: Path, shards: Iterator[Mapping[str, np.ndarray]], count: int) -> None:
    """Writes dictionaries of tensors, each to a file; with several an index of their names."""
    index, size = {}, 0
    for n, shard in enumerate(shards):
        file = FILE if count == 1 else f"model-{n + 1:05d}-of-{count:05d}.safetensors"
        whole = {name: np.ascontiguousarray(array) for name, array in shard.items()}
        save_file(whole, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(shard, file)
        size += sum(array.nbytes for array in shard.values())
    if count > 1:
        write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": index})


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns errors about a file into one line with its path."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or first_line(error)}") from None
    except SafetensorError as error:
        raise Refused(f"{path}: {first_line(error)}") from None
