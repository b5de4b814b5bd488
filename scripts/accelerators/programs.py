"""The programs, by name: attention of every method, training steps, evaluation, experiments."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from configs import lm
from experiments.compare.length_extrapolation import config as length_extrapolation
from experiments.pretrained.measuring import forward
from experiments.pretrained.run import spread
from posenc_jax import Dims, attend, encodings, frame
from posenc_jax.attention.frames import Form
from posenc_jax.backends.target import compile_for, target
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import EvalConfig, ModelConfig, TrainConfig
from posenc_jax.lab.gallery.measure import line, on_axes
from posenc_jax.lab.hosts import devices
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.pretrained import released
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.training import loop, optimizers
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.evaluation import Evaluator
from posenc_jax.lab.training.throughput import flops_per_token
from posenc_jax.layout import Layout, layout
from scripts.accelerators.first_training import first_training
from scripts.accelerators.released_models import LLAMA, PYTHIA

HEADS, HEAD = 12, 64
TOKENS = {"dense": 2048}  # of one sequence in each form
TOKENS_ELSEWHERE = 8192
SHORT, MIDDLE, LONG = 256, 16384, 131072
FAR = ("nope", "rope", "t5", "alibi", "kerple_log", "fox")  # compiled in blocks, long sequences
NARROW = ("liere", "cope", "deberta", "swin_2d", "shaw", "rope")  # compiled for short sequences too
HOPPER = ("nope", "rope", "alibi", "t5", "kerple_log", "window", "fox", "fire")  # in Mosaic
STEPS = ("rope", "t5", "fox", "transformer_xl")  # methods whose training steps are compiled
EXPERIMENTS = {  # those that train encodings one after another, and the method to compile
    **dict.fromkeys(("classification", "completion", "dna", "images"), "rope"),
    **dict.fromkeys(("length_extrapolation", "long_memory", "translation", "vision"), "rope"),
    "multimodal": "mrope",
}
WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "fsdp": {"fsdp": True},
    "remat": {"remat": True},
    "accumulate": {"accumulate": 8},
}
# Sizes of `configs/lm.py`, the token ids of each, and the numbers of chips: 1 is a GPU. The batches
# of the first three have fewer rows than 256.
LANGUAGE_MODELS = (
    ("default", 4096, (1, 8)),
    ("6m", 8192, (1, 8)),
    ("38m", 8192, (1, 8)),
    ("124m", 50_304, (1, 8, 256)),
    ("1b", 128_256, (1, 8, 256)),
)
BATCH, LENGTH = 8, 2048
SIDE = 16  # patches along a row of an image, and of a column of a video's frame


class Program(NamedTuple):
    """A program to compile for so many chips.

    lower: () -> the lowered program; it is called inside of `compile_for`.
    facts: () -> what its record holds besides, see `language_model_facts`; None: nothing.
    """

    lower: Callable[[], Any]
    chips: int = 1
    facts: Callable[[], dict[str, int]] | None = None


def programs() -> dict[str, Program]:
    """Returns all programs by their names."""
    return {**_attention(), **_other_lengths(), **_hopper(), **_steps(), **_evaluation(),
            **_experiments(), **_reading(), **_language_models()}  # fmt: skip


def forms() -> list[str]:
    """Returns the forms of attention that can be asked for."""
    return [form for form in get_args(Form) if form != "auto"]


def _attention() -> dict[str, Program]:
    programs = {}
    for name in sorted(encodings.CATALOG):
        for form in forms():
            tokens = TOKENS.get(form, TOKENS_ELSEWHERE)
            for way in ("forward", "backward"):
                lower = partial(attention, name, form, way == "backward", tokens)
                programs[f"attention/{name}/{form}/{way}"] = Program(lower)
    return programs


def _other_lengths() -> dict[str, Program]:
    cases = [
        *itertools.product(NARROW, ["dense"], [SHORT]),
        *itertools.product(("rope", "t5"), ["kernel"], [MIDDLE]),
        *itertools.product((*FAR, "transformer_xl"), ["blockwise"], [LONG]),
        *itertools.product(("nope", "fox", *_relative()), ["kernel"], [LONG]),
    ]
    return {
        f"attention/{name}/{form}/{way}/{tokens}": Program(
            partial(attention, name, form, way == "backward", tokens)
        )
        for name, form, tokens in cases
        for way in ("forward", "backward")
    }


def _hopper() -> dict[str, Program]:
    """Returns the programs of the kernels in Mosaic, for a GPU: see `HOPPER`."""
    cases = [
        *itertools.product(HOPPER, [TOKENS_ELSEWHERE], [HEAD]),
        *itertools.product(("t5", "fox"), [TOKENS_ELSEWHERE], [2 * HEAD]),
        *itertools.product(("alibi", "t5", "fox"), [LONG], [HEAD]),
    ]
    return {
        f"attention/{name}/mosaic/{way}/{tokens}/{head}": Program(
            partial(_in_mosaic, name, way == "backward", tokens, head)
        )
        for name, tokens, head in cases
        for way in ("forward", "backward")
    }


def _in_mosaic(name: str, backward: bool, tokens: int, head: int) -> Any:
    with compile_for("gpu", target().devices, kernel="mosaic"):
        return attention(name, "kernel", backward, tokens, head)


def _relative() -> list[str]:
    """Returns the relative and the rotary methods that read any position."""
    cards = map(encodings.card, sorted(encodings.CATALOG))
    cards = (card for card in cards if card.beyond != "error")
    return [card.name for card in cards if card.kind in ("bias", "rotary")]


def attention(name: str, form: str, backward: bool, tokens: int, head: int = HEAD) -> Any:
    """Lowers one layer's attention over one sequence in bfloat16, or its gradients."""
    dims = Dims(HEADS * head, HEADS, head, 1)
    encoding, at = encoding_of(name), layout_of(name, tokens)

    def forward(params, x_BTD, q, k, v):
        view = frame(encoding, params, at, dims, form=form)  # pyright: ignore[reportArgumentType]
        return attend(q, k, v, view.layer(0, view.embed(x_BTD)))

    def loss(*arguments):
        return forward(*arguments).astype(jnp.float32).sum()

    params = jax.eval_shape(lambda: encoding.init(jax.random.key(0), dims))
    x_BTD = jax.ShapeDtypeStruct((1, tokens, dims.model), jnp.bfloat16)
    x_BTHC = jax.ShapeDtypeStruct((1, tokens, HEADS, head), jnp.bfloat16)
    arguments = whole((params, x_BTD, x_BTHC, x_BTHC, x_BTHC))
    run = jax.grad(loss, argnums=tuple(range(5))) if backward else forward
    return jax.jit(run).lower(*arguments)


def takes_form(name: str, form: str) -> bool:
    """Returns whether this form of attention takes the method."""
    dims, encoding = Dims(HEADS * HEAD, HEADS, HEAD, 1), encoding_of(name)

    def traced():
        params = encoding.init(jax.random.key(0), dims)
        at = layout_of(name, SIDE**2)
        return frame(encoding, params, at, dims, form=form)  # pyright: ignore[reportArgumentType]

    try:
        jax.eval_shape(traced)
    except ValueError:
        return False
    return True


def encoding_of(name: str) -> Encoding:
    """Returns the method; one that only places is chained with two others, as in the tests."""
    only_places = encodings.card(name).kind == "positions"
    return encodings.make(f"{name}+sinusoidal+rope" if only_places else name)


def layout_of(name: str, tokens: int) -> Layout:
    """Returns one sequence, or the patches of an image or of a video's frames, row by row."""
    method = encodings.card(name)
    if method.axes < 2:
        return line(method, tokens)
    index = jnp.arange(tokens, dtype=jnp.int32)
    row = index // SIDE if method.axes == 2 else index // SIDE % SIDE
    pos_TA = on_axes(method.axes, index // SIDE**2, row, index % SIDE)
    return layout(jnp.ones((1, tokens), jnp.int32), pos_TA[None])


def _steps() -> dict[str, Program]:
    programs = {}
    for name, layers, way in itertools.product(STEPS, (1, 12), WAYS):
        lower = partial(training_step, name, layers, WAYS[way])
        chips = 4 if way == "fsdp" else 1
        programs[f"step/{name}/{layers}/{chips}/{way}"] = Program(lower, chips)
    return programs


def training_step(name: str, layers: int, saving: Mapping[str, Any]) -> Any:
    """Lowers one training step of a decoder on 8 windows of 2,048 bytes, in bfloat16.

    saving: fields of `TrainConfig` that save memory.
    """
    config = TrainConfig(length=LENGTH, batch=BATCH, **saving)
    shape = ModelConfig(width=HEADS * HEAD, heads=HEADS, layers=layers, dtype="bfloat16")
    task = tasks.make("stdlib")
    model = transformer.build(shape, encodings.make(name), task.vocab)
    return _chunk(model, task, config, seeds=1, steps=1)


def _chunk(model: Model, task: Task, config: TrainConfig, seeds: int, steps: int) -> Any:
    """Lowers the program of so many training steps."""
    run = loop.chunk_runner(model, config, loss_mask=True)
    batches = training_batches(task, config).shapes(seeds, steps)
    rate_N = whole(jax.ShapeDtypeStruct((steps,), jnp.float32))
    return run.lower(states(model, config, seeds), batches, rate_N)


def states(model: Model, config: TrainConfig, seeds: int) -> Any:
    """Returns the shapes of the states of all seeds, as `init_runner` spreads them."""
    tx = optimizers.optimizer(config)
    init = loop.init_runner(model, tx, seeds, fsdp=config.fsdp)
    shapes = init.eval_shape()
    shaped = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    return jax.tree.map(shaped, shapes, devices.state_shardings(shapes, config.fsdp))


def whole(tree: Any) -> Any:
    """Returns the shapes of a tree as arguments that lie whole on every chip."""
    everywhere = NamedSharding(devices.seed_sharding((1,)).mesh, PartitionSpec())
    return _shaped(tree, lambda x: everywhere)


def _shaped(tree: Any, spread: Callable[[Any], NamedSharding]) -> Any:
    shaped = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x), sharding=spread(x))
    return jax.tree.map(shaped, tree)


def _evaluation() -> dict[str, Program]:
    lengths = (8192, 32768, LONG)
    return {
        f"evaluation/{name}/{length}": Program(partial(evaluation, name, length))
        for name, length in itertools.product(STEPS, lengths)
    }


def evaluation(name: str, length: int) -> Any:
    """Lowers the default model's evaluation on windows of one length, 131,072 tokens at once."""
    task = tasks.make("stdlib", stretch=LONG)
    model = transformer.build(ModelConfig(), encodings.make(name), task.vocab)
    config = EvalConfig(lengths=(length,), tokens=LONG)
    return _scoring(model, task, config, length, TrainConfig(), seeds=1)


def _scoring(model, task, config: EvalConfig, length: int, train: TrainConfig, seeds: int) -> Any:
    evaluator = Evaluator(model, task._replace(data=whole(task.data)), config)
    return evaluator.lower(states(model, train, seeds).params, length)


def _language_models() -> dict[str, Program]:
    """A training step of the sizes of `configs/lm.py`, on slices of chips."""
    return {
        f"lm/{size}/{chips}": Program(
            partial(language_model, size, vocab, chips),
            chips,
            partial(language_model_facts, size, vocab),
        )
        for size, vocab, slices in LANGUAGE_MODELS
        for chips in slices
    }


def language_model(size: str, vocab: int, chips: int) -> Any:
    """Lowers one training step of a size of `configs/lm.py`, as its config says; one chip has all
    heads.
    """
    config, model = _language_model(size, vocab)
    # Windows of bytes have the shapes of windows of tokens.
    with devices.tensor_parallel(config.train.tensor if chips > 1 else 1):
        return _chunk(model, tasks.make("stdlib"), config.train, seeds=config.seeds, steps=1)


def language_model_facts(size: str, vocab: int) -> dict[str, int]:
    """Parameters, FLOP of a token, tokens of a step and steps of a size of `configs/lm.py`."""
    config, model = _language_model(size, vocab)
    train, params = config.train, jax.eval_shape(model.init, jax.random.key(0))
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "flops_per_token": flops_per_token(config.model, params, train.length) or 0,
        "tokens_per_step": train.batch * train.length,
        "steps": train.steps,
    }


def _language_model(size: str, vocab: int) -> tuple[length_extrapolation.Config, Model]:
    words = "" if size == "default" else size
    config = length_extrapolation.Config.model_validate(lm.get_config(words).to_dict())
    return config, transformer.build(config.model, encodings.make(config.encoding.name), vocab)


def _reading() -> dict[str, Program]:
    """Released models read in windows of 8 times their trained length."""
    return {
        "reading/pythia-70m/16384": Program(partial(reading, PYTHIA, 16384)),
        "reading/Llama-2-7b/32768": Program(partial(reading, LLAMA, 32768), chips=4),
    }


def reading(config: Mapping[str, Any], tokens: int) -> Any:
    """Lowers the forward pass and the loss of one window in bfloat16, with blockwise attention."""
    shape = released(config)
    model = transformer.build(
        shape.config.model_copy(update={"dtype": "bfloat16"}), shape.encoding, shape.vocab
    )

    def placed(leaf):
        dtype = jnp.bfloat16 if leaf.ndim > 1 else leaf.dtype
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=spread(leaf))

    params = jax.tree.map(placed, jax.eval_shape(model.init, jax.random.key(0)))
    id_BT = whole(jax.ShapeDtypeStruct((1, tokens + 1), jnp.int32))
    return forward(model, form="blockwise").lower(params, id_BT)


def _experiments() -> dict[str, Program]:
    """Training and evaluation of experiments at the default config of `configs/`."""
    return {
        f"experiment/{stem}/{part}": Program(partial(experiment, stem, name, part))
        for stem, name in EXPERIMENTS.items()
        for part in ("train", "evaluate")
        if (stem, part) != ("long_memory", "evaluate")  # it reads in a way of its own
    }


def experiment(stem: str, name: str, part: str) -> Any:
    """Lowers the training of an experiment, a chunk of steps, or its longest evaluation."""
    first = first_training(stem, name)
    model, config, _ = first.chunk
    if part == "train":
        _, batches, rate_N = first.arguments
        run, shapes = loop.chunk_runner(*first.chunk), states(model, config, first.seeds)
        batches = _shaped(batches, lambda x: devices.batch_sharding(x.shape))
        return run.lower(shapes, batches, whole(rate_N))
    longest = max(first.evaluations)
    model, task, limits = first.evaluations[longest]
    return _scoring(model, task, limits, longest, config, first.seeds)
