"""The catalogue's methods for sequences on one task, each trained until it has learned the task.

    python train.py --config=configs/leaderboard.py                    # copy, well-known methods
    python train.py --config=configs/leaderboard.py:others --config.task.name=reverse
    python train.py --config=configs/leaderboard.py:rope,alibi,nope    # these
    python train.py --config=configs/leaderboard.py:quick
    python scripts/sweep.py --config=configs/leaderboard.py --dry-run  # the runs of the board
    make board              # those that docs/leaderboard does not have yet; then writes the page

    python train.py --config=configs/leaderboard.py:position           # the design of 12 problems
    python scripts/board.py --stage=position-rates      # measures a stage, or goes on with it

Each method is trained in windows of 32 tokens, with three learning rates, of which validation
examples choose one, and tested in windows of 32 to 512. Against rope it has a cost (what it loses
within the trained window) and a gain (beyond it).

A training takes half a minute of one core, a task of the best-known methods an hour of two;
`quick` takes 20 to 30 seconds.

"position" is the board's next design: 12 problems that tell position from content
(`experiments/board/leaderboard/problems.py`), windows of 64 tokens, tests to 512, a fixed budget
whose rate falls at its end, and the mean over 8 late checkpoints. Its sweeps, in this order:

    stage            content                                                   trainings  hours
    position-rates   four rates; one method of a kind, one seed                      216      4
    position-first   16 methods on six problems, 3 seeds; other options of seven     540      9
    position-doubled the same 16 methods with twice the steps, 2 seeds               192      5
    position-rest    16 methods on the other six, and two more seeds of all          714     12
    position-large   12 methods, three problems, 3 seeds, 4 layers of width 128      108     10
    position-bases   recall with 8 bases of rope, windows of 64 and 256, 3 seeds      80      3
    position-path    reversing with path: 4 alphabets, 1 and 2 layers; 5 seeds        84      3
    position-others  the other methods on the six problems, 3 seeds                     810     15

"position-rates" prints the rates for `CHOSEN`. A run of "position-rates",
"position-bases" or "position-path" has one method, which takes one core: start the stage twice,
as --part=1/2 and --part=2/2. The hours are of two cores of an AMD EPYC (Zen 3): a step takes 14 to
20 ms with most methods, 45 to 55 with path, cope, fire and deberta, and a training of 4,000 steps
with its tests 25 s more. Those of width 128 are estimates. A point of a stage is a run; one whose
process is stopped goes on after the last method that it has measured.
"""

from configs import common
from posenc_jax.lab.config import sweeps

# Learned within the trained sizes, and not solved by the bag of the tokens alone.
TASKS = (
    *("reverse", "duplicate_string", "passkey", "flip_flop", "marker_position", "periodic", "copy"),
    *("selective_copy", "binary_addition", "needle"),
)
# The rate where three are not tried. Against the best of three it costs the families of the
# best-known methods (input, biases, rotations, content) at most .012 of exact match on validation
# examples, on average; nope and randomized+rope at most .08.
RATE, RATES = 4e-3, {"needle": 1e-3}


# The design "position". Its stages are sweeps; words after one are methods: "position,rope,quick".
POSITION = {
    "window": 64, "multiples": (1, 2, 4, 8), "shortest": 8, "examples": 1024, "seeds": 3,
    "train": {
        "steps": 4000, "chunk": 50, "average": 0, "fall": 0.2, "looks": 8, "late": 0.3,
        "pairs": True,
        "rates": (4e-3, 2e-3, 1e-3, 5e-4), "widen": 2, "learned": None,
    },
}  # fmt: skip
FIRST = ("copy_distinct", "delay8", "recall_order", "flip_flop", "reverse_bits", "count")
REST = (
    *(
        "reverse_distinct",
        "recall_distinct",
        "indirect_indexing",
        "copy_bits",
        "parity",
        "majority",
    ),
)
LARGE = ("reverse_distinct", "delay8", "recall_order")
# Bases of rope beside 10,000: a turn of the slowest pair in 64 tokens, and the least base for 512
# by arXiv 2405.14591, for heads of 16 channels; see `method_options.bases`. Each is a row: loss in
# the trained window, which chooses learning rates, is 0 with any of them.
BASES = (14.2, 56533.6)
# (method, problem) -> the learning rate that "position-rates" chose by the loss on validation
# examples, out of four to six. 19 of 54 are the lowest or the highest that was tried.
CHOSEN = {
    ("alibi", "copy_distinct"): 0.004,
    ("alibi", "count"): 0.002,
    ("alibi", "delay8"): 0.002,
    ("alibi", "flip_flop"): 0.001,
    ("alibi", "recall_order"): 0.002,
    ("alibi", "reverse_bits"): 0.002,
    ("fox", "copy_distinct"): 0.002,
    ("fox", "count"): 0.002,
    ("fox", "delay8"): 0.002,
    ("fox", "flip_flop"): 0.004,
    ("fox", "recall_order"): 0.002,
    ("fox", "reverse_bits"): 0.004,
    ("nope", "copy_distinct"): 0.004,
    ("nope", "count"): 0.002,
    ("nope", "delay8"): 0.002,
    ("nope", "flip_flop"): 0.001,
    ("nope", "recall_order"): 0.002,
    ("nope", "reverse_bits"): 0.002,
    ("path", "copy_distinct"): 0.004,
    ("path", "count"): 0.002,
    ("path", "delay8"): 0.004,
    ("path", "flip_flop"): 0.004,
    ("path", "recall_order"): 0.004,
    ("path", "reverse_bits"): 0.001,
    ("randomized+rope", "copy_distinct"): 0.004,
    ("randomized+rope", "count"): 0.004,
    ("randomized+rope", "delay8"): 0.004,
    ("randomized+rope", "flip_flop"): 0.001,
    ("randomized+rope", "recall_order"): 0.001,
    ("randomized+rope", "reverse_bits"): 0.004,
    ("rope", "copy_distinct"): 0.004,
    ("rope", "count"): 0.002,
    ("rope", "delay8"): 0.004,
    ("rope", "flip_flop"): 0.004,
    ("rope", "recall_order"): 0.002,
    ("rope", "reverse_bits"): 0.004,
    ("shaw", "copy_distinct"): 0.004,
    ("shaw", "count"): 0.001,
    ("shaw", "delay8"): 0.004,
    ("shaw", "flip_flop"): 0.001,
    ("shaw", "recall_order"): 0.004,
    ("shaw", "reverse_bits"): 0.004,
    ("sinusoidal", "copy_distinct"): 0.008,
    ("sinusoidal", "count"): 0.002,
    ("sinusoidal", "delay8"): 0.004,
    ("sinusoidal", "flip_flop"): 0.002,
    ("sinusoidal", "recall_order"): 0.002,
    ("sinusoidal", "reverse_bits"): 0.002,
    ("t5", "copy_distinct"): 0.004,
    ("t5", "count"): 0.002,
    ("t5", "delay8"): 0.004,
    ("t5", "flip_flop"): 0.004,
    ("t5", "recall_order"): 0.002,
    ("t5", "reverse_bits"): 0.002,
}
# Problems whose rates were not tried, and the one posed most alike, whose rate each takes.
LIKE = {
    "reverse_distinct": "copy_distinct",
    "recall_distinct": "recall_order",
    "indirect_indexing": "delay8",
    "copy_bits": "reverse_bits",
    "parity": "flip_flop",
    "majority": "count",
}
# `SIXTEEN` of experiments/board/leaderboard/config.py, by the one whose rate they take.
SIXTEEN = {
    "nope": ("nope",),
    "sinusoidal": ("sinusoidal", "shifted+learned"),
    "rope": ("rope", "p_rope", "partial"),
    "alibi": ("alibi", "kerple_log"),
    "t5": ("t5", "fire"),
    "shaw": ("shaw", "deberta"),
    "fox": ("fox", "cope"),
    "path": ("path",),
    "randomized+rope": ("randomized+rope",),
}
TWELVE = {
    "nope": ("nope",),
    "sinusoidal": ("shifted+learned",),
    "rope": ("rope", "p_rope", "local_global"),
    "alibi": ("alibi", "kerple_log"),
    "t5": ("t5",),
    "shaw": ("shaw",),
    "fox": ("fox",),
    "path": ("path",),
}
# Other options of methods, each a row of its own beside the method; see
# `method_options.alternatives`: three bases of rotary methods, with 10,000, and what else suits.
_BASES = tuple({"base": base} for base in BASES)
ALTERNATIVES = {
    **dict.fromkeys(("rope", "partial", "randomized+rope"), _BASES),
    "p_rope": (_BASES[1], {"share": 0.75}),  # with the other base it is rope
    "alibi": ({"learned": True},),
    "fox": ({"gate_bias": 4.16},),
    "shaw": ({"distance": 16}, {"distance": 48}),
    "t5": ({"distance": 32},),
    "deberta": ({"buckets": 0, "distance": 32},),
}
STAGES = (
    *("position", "position-rates", "position-first", "position-doubled", "position-rest"),
    *("position-large", "position-bases", "position-path", "position-others"),
)
# Bases of "position-bases" beside 10,000: on both sides of the largest base of which every pair of
# channels makes a turn in 64 and in 256 tokens, and of the least base for the tests.
ALL_BASES = (4.0, BASES[0], 69.0, 1000.0, BASES[1], 1e6, 1e7)

# Alphabets of "position-path": content tells places of the first ones apart, not of the last ones.
ALPHABETS = (
    {"task.symbols": "distinct", "task.alphabet": 256},
    {"task.alphabet": 26},
    {"task.alphabet": 4},
    {"task.alphabet": 2},
)


def get_config(argument=""):
    names, quick = common.words(argument)
    stage, names = common.pick(names, STAGES)
    config = common.config(
        "leaderboard",
        encoding={"name": ",".join(names) or ("nope,rope,alibi" if quick else "known")},
        task={"name": "copy_distinct" if stage else "copy"},
        model={"width": 64, "mlp": 2},
        **(POSITION if stage else {"seeds": 5}),
    )
    if names == ["others"]:
        config.update(seeds=3)
    if quick:
        config.update(multiples=(1, 2), examples=32, seeds=2)
        config.model.update(width=32)
        config.train.update(batch=16, steps=80, chunk=20, warmup=10, rates=(4e-3,))
        config.train.update(looks=1, widen=0) if stage else config.train.update(average=10)
    return config


# Settings that check the board.
CHECKS = {
    "doubled": {"train.steps": 8000},
    "second": {"seeds": 3, "window": 48, "model.heads": 8, "train.batch": 64},
}


def get_sweep(argument=""):
    """Every task with the best-known methods, then every task with all others at one rate.

    "doubled,METHODS" and "second,METHODS" are checks: these methods with every task in another
    setting, of which the second has one rate too. The stages of "position" are in `STAGES`.
    """
    if argument in STAGES:
        return _position(argument)
    every = sweeps.grid({"task.name": TASKS})
    rates = [(RATES.get(task, RATE),) for task in TASKS]
    at_one = sweeps.zipped({"task.name": TASKS, "train.rates": rates})
    check, _, names = argument.partition(",")
    if names and check in CHECKS:
        fields = {"encoding.name": names, **CHECKS[check]}
        return sweeps.product((fields,), every if check == "doubled" else at_one)
    well_known = {"encoding.name": "known", "seeds": 5}
    others = {"encoding.name": "others", "seeds": 3}
    return sweeps.product((well_known,), every) + sweeps.product((others,), at_one)


def _position(stage):
    """The points of a stage; a point has the methods of one rate on one problem."""
    if stage == "position-rates":
        rows = tuple({"encoding.name": name, "seeds": 1} for name in SIXTEEN)
        return sweeps.product(rows, sweeps.grid({"task.name": FIRST}))
    if stage == "position-first":
        return _points(FIRST, SIXTEEN) + _alternatives(FIRST)
    if stage == "position-doubled":
        return _points(FIRST, SIXTEEN, seeds=2, **CHECKS["doubled"])
    if stage == "position-others":
        return _points(FIRST, {rated: (f"as_{rated}",) for rated in SIXTEEN})
    if stage == "position-rest":
        again = {"first_seed": 3, "seeds": 2}
        points = _points(REST, SIXTEEN, seeds=5) + _points(FIRST, SIXTEEN, **again)
        return points + _tuned(REST, seeds=5) + _tuned(FIRST, **again)
    if stage == "position-bases":
        # Keys for the longest line, and the same in both windows.
        fields = {"task.name": "recall_distinct", "task.keys": 1024, "encoding.name": "rope"}
        fields |= {"train.rates": POSITION["train"]["rates"][:3], "train.widen": 0}
        windows = ({**fields, "window": 64}, {**fields, "window": 256})
        bases = ({}, *({"encoding.base": base} for base in ALL_BASES))
        return sweeps.product(windows, bases)
    if stage == "position-path":
        fields = {"task.name": "reverse_letters", "encoding.name": "path", "seeds": 5}
        fields |= {"train.rates": POSITION["train"]["rates"][:3], "train.widen": 0}
        layers = tuple({**fields, "model.layers": n} for n in (1, 2))
        betas = sweeps.grid({"encoding.beta": (1.0, 2.0)})
        alphabets = sweeps.product(layers, ALPHABETS)
        return alphabets + sweeps.product(layers[:1], ALPHABETS[1:3], betas)
    # Heads of 16 channels as in the small model, so that bases and shares of channels suit both.
    # Of twice the width, half the rate: hidden layers keep their best rate times the width (Yang
    # et al. 2022, arXiv 2203.03466).
    large = {"model.width": 128, "model.layers": 4, "model.heads": 8}
    points = _points(LARGE, TWELVE, **large) + _tuned(LARGE, **large)
    return tuple(
        {**point, "train.rates": tuple(rate / 2 for rate in point["train.rates"])}
        for point in points
    )


def _tuned(problems, **fields):
    """The points of rope whose angles are all met in training."""
    tuned = ({"encoding.base": BASES[0]},)
    return sweeps.product(tuned, _points(problems, {"rope": ("rope",)}, **fields))


def _alternatives(problems, **fields):
    """The points of methods with other options."""
    return tuple(
        point
        for rated, names in SIXTEEN.items()
        for name in names
        for options in ALTERNATIVES.get(name, ())
        for point in sweeps.product(
            ({f"encoding.{option}": value for option, value in options.items()},),
            _points(problems, {rated: (name,)}, **fields),
        )
    )


def _points(problems, groups, **fields):
    """The points of problems and groups of methods, at the rate that was chosen for each."""
    return tuple(
        {
            "task.name": problem,
            "encoding.name": ",".join(names),
            "train.rates": (_rate(rated, problem),),
            "train.widen": 0,
            **fields,
        }
        for problem in problems
        for rated, names in groups.items()
    )


def _rate(rated, problem):
    return CHOSEN[rated, LIKE.get(problem, problem)]
