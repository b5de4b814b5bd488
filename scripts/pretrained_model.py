"""Trains the model of configs/pretrained.py on the standard library's source, and saves it.

    python scripts/pretrained_model.py

The folder experiments/pretrained/model gets config.json, model.safetensors, tokenizer.json and a
card with their hashes. The model is a Llama whose tokens are bytes. It is trained on windows of 128
bytes until the last quarter of its steps has gained less than 0.02 bits per byte of the validation
split. Its learning rate is constant, and its weights are averaged, so training may end at any step.
A run that was stopped goes on where it was.
"""

import argparse
import hashlib
import math
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from experiments.convergence import Examples, Programs, rows_of
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import Part
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.transformer import build
from posenc_jax.lab.runs.checkpoints import Checkpoints, fill

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments/pretrained/model"
LENGTH = 128
GAIN, PART = 0.02, 0.25  # bits per byte that the last quarter of the steps must gain
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


class Budget(Part):
    """How the model is trained; see `experiments.convergence.Budget`."""

    batch: int = 16
    chunk: int = 100
    average: int = 500
    warmup: int = 100
    decay: float = 0.01
    clip: float = 1.0
    rate: float = 3e-3
    least: int = 4000


def main() -> int:
    """Returns the exit status, 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs/pretrained_model")
    given = parser.parse_args()
    task = tasks.make("stdlib", stretch=32768)
    budget = Budget()
    params, bits = train(task, budget, Checkpoints(given.workdir))
    pretrained.save(FOLDER, CONFIG, params)
    byte_tokenizer().save(str(FOLDER / "tokenizer.json"))
    (FOLDER / "README.md").write_text(card(task, budget, bits), "utf-8")
    return 0


def train(task: Any, budget: Budget, checkpoints: Checkpoints) -> tuple[Any, list[float]]:
    """The averaged weights at the plateau, and the bits per byte of the validation split after
    each chunk of steps.
    """
    what = pretrained.released(CONFIG)
    programs = Programs(build(what.config, what.encoding, what.vocab), budget)
    valid = task.numbered(
        task.data, jnp.arange(task.examples(LENGTH)), jnp.int32(LENGTH), LENGTH, "valid"
    )
    examples = Examples(rows_of(task, budget, (LENGTH, LENGTH), LENGTH), valid, ())
    training, bits = programs.start([budget.rate], [0]), []
    for found in checkpoints.newest():
        training, bits = fill(training, found.leaves), found.note["bits"]
        break
    while not settled(bits, budget):
        training, loss_S = programs.advance(training, examples, len(bits) * budget.chunk)
        nats_S = programs.score(training.average, valid)["loss"]
        bits = [*bits, float(nats_S[0]) / math.log(2)]
        step = len(bits) * budget.chunk
        train_bits = float(loss_S[0]) / math.log(2)
        print(f"step {step}: {train_bits:.4f} training, {bits[-1]:.4f} validation", flush=True)
        checkpoints.save(step, training, {"bits": bits})
    checkpoints.wait()
    return jax.tree.map(lambda leaf: leaf[0], training.average), bits


def settled(bits: list[float], budget: Budget) -> bool:
    """Whether the last part of the steps has gained less than `GAIN`."""
    if len(bits) * budget.chunk < budget.least:
        return False
    return bits[round((1 - PART) * len(bits)) - 1] - bits[-1] < GAIN


def byte_tokenizer() -> Tokenizer:
    """The tokenizer whose ids are the bytes of a text in UTF-8."""
    shown = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    shown = [b for b in shown if b != 0xAD]
    more = iter(range(256, 512))
    vocab = {chr(b) if b in shown else chr(next(more)): b for b in range(256)}
    made = Tokenizer(models.BPE(vocab, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def card(task: tasks.Task, budget: Budget, bits: list[float]) -> str:
    """The card of the model: what it is, its text, its training, and the hashes of its files."""
    names = "config.json", "model.safetensors", "tokenizer.json"
    hashes = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in names}
    count = sum(leaf.size for leaf in pretrained.shapes(pretrained.released(CONFIG)).values())
    steps, facts = len(bits) * budget.chunk, task.facts
    gained = bits[round((1 - PART) * len(bits)) - 1] - bits[-1]
    lines = [
        "# A byte-level Llama for tests of context extension",
        "",
        f"{CONFIG['num_hidden_layers']} layers, width {CONFIG['hidden_size']}, "
        f"{CONFIG['num_attention_heads']} heads, {count:,} parameters in float32; tokens are "
        "bytes. `python scripts/pretrained_model.py` makes it. It has the license of this "
        "repository, and is only of use as a small example.",
        "",
        f"- Text: the source of the standard library of Python {platform.python_version()} without "
        "its tests, split by file. Another version of Python has another text. SHA-256 of the "
        f"three splits: `{facts['sha256']}`.",
        f"- Training: {steps:,} steps of {budget.batch} windows of {LENGTH} bytes, AdamW, learning "
        f"rate {budget.rate:g}, weights averaged over about {budget.average} steps.",
        f"- Validation: {bits[-1]:.3f} bits per byte in windows of {LENGTH} bytes. The last "
        f"quarter of the steps gained {gained:.3f}.",
        "",
        "| file | SHA-256 |",
        "|---|---|",
        *(f"| `{name}` | `{value}` |" for name, value in hashes.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
