"""Trains the model of configs/pretrained.py on the standard library's source, and saves it.

    python scripts/pretrained_model.py

The folder experiments/pretrained/model gets config.json, model.safetensors, tokenizer.json and a
card with their hashes. The model is a Llama whose tokens are bytes, trained on windows of 128
bytes. The number of steps is fixed before the run. The learning rate is constant, and falls to 0 in
the last fifth of them (Hägele et al. 2024, arXiv 2405.18392). A run that was stopped goes on where
it was.
"""

import hashlib
import math
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from experiments.board.training import Examples, Programs
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import Part, TrainConfig
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.transformer import build
from posenc_jax.lab.runs.checkpoints import Checkpoints, fill
from posenc_jax.lab.training.batches import TrainingBatches
from posenc_jax.lab.training.optimizers import schedule

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments/pretrained/model"
LENGTH = 128
LAST = 1000  # steps in which a training that is at its plateau gains little
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
    """How the model is trained; see `experiments.board.training.Budget`.

    steps: of which the last `fall` have a learning rate that falls to 0, on a line.
    """

    steps: int = 25_000
    fall: int = 5_000
    batch: int = 16
    chunk: int = 100
    average: int = 500
    warmup: int = 100
    decay: float = 0.01
    clip: float = 1.0
    rate: float = 3e-3


def main() -> int:
    """Returns the exit status, 0."""
    parser = Flags(__doc__)
    parser.add_argument("--workdir", type=Flags.path, default=ROOT / "runs/pretrained_model")
    flags = parser.parse_args()
    task = tasks.make("stdlib", stretch=32768)
    budget = Budget()
    params, bits = train(task, budget, Checkpoints(flags.workdir))
    pretrained.save(FOLDER, CONFIG, params)
    byte_tokenizer().save(str(FOLDER / "tokenizer.json"))
    (FOLDER / "README.md").write_text(card(task, budget, bits), "utf-8")
    return 0


def train(task: Any, budget: Budget, checkpoints: Checkpoints) -> tuple[Any, list[float]]:
    """The averaged weights at the end, and the bits per byte of the validation split after each
    chunk of steps.
    """
    what = pretrained.released(CONFIG)
    programs = Programs(build(what.config, what.encoding, what.vocab), budget, shares(budget))
    valid = task.numbered(
        task.data, jnp.arange(task.examples(LENGTH)), jnp.int32(LENGTH), LENGTH, "valid"
    )
    examples = Examples(TrainingBatches(task, budget.batch, (LENGTH, LENGTH), LENGTH), valid, ())
    state, bits = programs.start([budget.rate], [0]), []
    for saved in checkpoints.newest():
        state, bits = fill(state, saved.leaves), saved.note["bits"]
        break

    def save(state, step, metrics) -> None:
        nats_S = programs.score(state.average, valid)["loss"]
        bits.append(float(nats_S[0]) / math.log(2))
        train_bits = float(metrics["loss"].mean()) / math.log(2)
        print(f"step {step}: {train_bits:.4f} training, {bits[-1]:.4f} validation", flush=True)
        checkpoints.save(step, state, {"bits": bits})

    state = programs.fit(state, examples, budget.steps, save)
    checkpoints.wait()
    return jax.tree.map(lambda leaf: leaf[0], state.average), bits


def shares(budget: Budget) -> Callable[[Any], Any]:
    """The share of `budget.rate` by step."""
    fall = {"name": "wsd", "fall": budget.fall / (budget.steps - budget.warmup)}
    fields = {"lr": 1.0, "steps": budget.steps, "warmup": budget.warmup, "schedule": fall}
    return schedule(TrainConfig.model_validate(fields))


def byte_tokenizer() -> Tokenizer:
    """The tokenizer whose ids are the bytes of a text in UTF-8."""
    shown = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    shown = [b for b in shown if b != 0xAD]
    more = iter(range(256, 512))
    vocab = {chr(b) if b in shown else chr(next(more)): b for b in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def card(task: tasks.Task, budget: Budget, bits: list[float]) -> str:
    """The card of the model: what it is, its text, its training, and the hashes of its files."""
    names = "config.json", "model.safetensors", "tokenizer.json"
    hashes = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in names}
    count = sum(leaf.size for leaf in pretrained.shapes(pretrained.released(CONFIG)).values())
    constant = (budget.steps - budget.fall) // budget.chunk
    before, least = bits[constant * 3 // 4 - 1], bits[constant - 1]
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
        f"three splits: `{task.facts['sha256']}`.",
        f"- Training: {budget.steps:,} steps of {budget.batch} windows of {LENGTH} bytes, AdamW; "
        f"the learning rate is {budget.rate:g}, and falls to 0 in the last {budget.fall:,} steps; "
        f"weights averaged over about {budget.average} steps.",
        f"- Validation: {bits[-1]:.3f} bits per byte in windows of {LENGTH} bytes; the last "
        f"{LAST:,} steps gained {bits[-1 - LAST // budget.chunk] - bits[-1]:.3f}, so the training "
        f"has come to its plateau. It is that of this budget: it had {least:.3f} before the rate "
        f"fell, where a quarter of the steps gained {before - least:.3f}, and more of them would "
        "make a better model.",
        "",
        "| file | SHA-256 |",
        "|---|---|",
        *(f"| `{name}` | `{value}` |" for name, value in hashes.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
