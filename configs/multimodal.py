r"""Clips with a moving digit, a track of tones and a question in text: which positions answer it.

    python train.py --config=configs/multimodal.py                    # the tone as it comes in
    python train.py --config=configs/multimodal.py:column             # its column in the frame
    python train.py --config=configs/multimodal.py:order              # its place in the text
    python train.py --config=configs/multimodal.py:tone,mrope,rope    # any encodings
    python train.py --config=configs/multimodal.py:quick
    python train.py --config=configs/multimodal.py --config.task.name=clips:own.npz \
        --config.train.length=8 --config.eval.lengths="(8,16)"
    python scripts/experiment_page.py RUN RUN RUN                     # docs/multimodal.md

Trained on clips of 2 to 4 seconds, tested on up to 8. Frames and tones stand in storage as in
Qwen2.5-Omni. Methods of three axes read (time, row, column), each as its paper gives them; methods
of one axis make two rows, one with the number of each token and one with its time. The arrays of
own clips are described in posenc_jax/lab/tasks/clips.py.

Expect at 4 seconds: of the tone 0.9 or more for most methods (`video_rope` 0.98, `tmrope` 0.97,
without positions 0.34), of the column 1.0 for methods of three axes (`rope` 0.81, without positions
0.35), of the order 0.99 for `tmrope` (`rope` and no positions 0.5). At 8 seconds `video_rope` has
the best tone, 0.73, methods of three axes have 0.6 to 0.8 of the columns, and none has the order. A
question takes 2 to 4 minutes on 2 cores.
"""

from configs import common
from posenc_jax.encodings import taken_by

# Of each question its steps and its pooling; two words are read faster from one token.
QUESTIONS = {"tone": (640, "mean"), "column": (300, "mean"), "order": (400, "first")}
DEFAULT = ("nope", "rope", "mrope", "tmrope", "video_rope", "mhrope")
# Ids are small, so frequencies are high, and each axis has high ones.
OPTIONS = {"base": 100.0, "order": "interleaved"}


def get_config(argument=""):
    words, quick = common.words(argument)
    chosen, names = common.pick(words, QUESTIONS)
    steps, pooling = QUESTIONS[chosen or "tone"]
    names = names or (("nope", "mrope") if quick else DEFAULT)
    options = {k: v for name in names for k, v in taken_by(name, OPTIONS).items()}
    config = common.config(
        "multimodal",
        encoding={"name": ",".join(names), **options},
        task={"name": "clips", **({"question": chosen} if chosen else {})},
        model={"kind": "encoder", "width": 64, "mlp": 2},
        train={
            "length": 4,
            "min_length": 2,
            "batch": 32,
            "steps": steps,
            "lr": 5e-3,
            "chunk": steps // 5,  # chunks of one size are one program
        },
        eval={"lengths": (4, 8), "examples": 256},
        pooling=pooling,
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(batch=16, steps=40, warmup=5, chunk=20)
        config.eval.update(lengths=(4, 8), examples=32)
        config.seeds = 2
    return config
