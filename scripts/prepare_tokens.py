"""Prepares a text as tokens, once, for runs to read: `--config.task.name=tokens:FOLDER`.

    python scripts/prepare_tokens.py TEXT --tokenizer=bpe:8192 --out=FOLDER

TEXT is FILE.jsonl, of which each line is a document; a folder of such files, or of text or code, of
which each file is one; FILE.txt, which is cut into three; tfds:NAME, see prepare_data.py; or
stdlib. Files may end in .gz or .zst. The tokenizer is a tokenizer.json of Hugging Face, or
bpe:SIZE, which is trained on the text. docs/tokens.md says more. A preparation that was interrupted
goes on if it is started again. Exit status 2: it cannot, and one line says why; 75: it was
interrupted.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.exit_status import Interrupted, Refused, Stop
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.tasks.tokens import documents, preparing
from posenc_jax.options import FieldError


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the text changes or the disk is full; 2 for wrong input."""
    parser = Flags((__doc__ or "").splitlines()[0])
    parser.add_argument("text", help="a folder, FILE.jsonl, FILE.txt, tfds:NAME or stdlib")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json, or bpe:SIZE")
    parser.add_argument("--out", required=True, help="the folder to write")
    parser.add_argument("--field", default=documents.FIELD, help="of the text in a line or example")
    parser.add_argument("--separator", default="", help="the special token before a document")
    flags = parser.parse_args(arguments)
    try:
        source = documents.source(flags.text, flags.field)
        tokenizer = flags.tokenizer if ":" in flags.tokenizer else str(expanded(flags.tokenizer))
        folder, say = expanded(flags.out), lambda line: print(line, flush=True)
        options = flags.field, flags.separator, say
        manifest = preparing.prepare(source, tokenizer, folder, *options)
    except FieldError as error:  # of a reader that tasks use too, whose field is not one of ours
        print(f"error: {error.reason}", file=sys.stderr)
        return Refused.status
    except Stop as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    for line in described(manifest):
        print(line)
    print(f"prepared; read it with --config.task.name=tokens:{flags.out}")
    return 0


def described(manifest: Mapping[str, Any]) -> list[str]:
    """Returns lines that say what a folder holds."""
    source, tokenizer = manifest["source"], manifest["tokenizer"]
    lines = [
        f"text:      {source['name']}, {source['left_out']} left out (empty or not UTF-8), "
        f"sha256 {source['sha256']}",
        f"tokenizer: {tokenizer['vocab']} ids, sha256 {tokenizer['sha256']}",
    ]
    for name, split in manifest["splits"].items():
        rate = split["bytes"] / split["tokens"]
        lines.append(
            f"{name + ':':10} {split['tokens']:,} tokens of {split['documents']:,} documents, "
            f"{rate:.2f} bytes each"
        )
    return lines


def _interrupt(number: int, frame: object) -> None:
    """Ends the process; what it wrote is whole at any moment. An exception could be lost, since
    Python ignores those raised in a callback of its garbage collector, such as JAX's.
    """
    os.write(2, b"interrupted; the same command goes on with it\n")
    os._exit(Interrupted.status)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    sys.exit(main())
