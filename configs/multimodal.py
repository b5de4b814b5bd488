r"""Clips with a digit, a track of tones and a question in text: which positions answer it.

    python train.py --config=configs/multimodal.py                    # the tone that sounds with it
    python train.py --config=configs/multimodal.py:column             # its place in the frame
    python train.py --config=configs/multimodal.py:order              # its place in the text
    python train.py --config=configs/multimodal.py:tone,mrope,rope    # any encodings
    python train.py --config=configs/multimodal.py:quick
    python scripts/experiment_page.py RUN                             # docs/multimodal.md

Trained on clips of 2 to 4 seconds, tested on up to 8. Frames and tones stand in storage as in
Qwen2.5-Omni. Methods of three axes read (time, row, column); methods of one axis make two rows, one
with the number of each token and one with its time.
"""

from configs import common
from posenc_jax.encodings import taken_by
from posenc_jax.options import FieldError

QUESTIONS = ("tone", "column", "order")
DEFAULT = ("nope", "rope", "mrope", "tmrope")
# Ids are small, so frequencies are high, and each axis has high ones.
OPTIONS = {"base": 100.0, "order": "interleaved"}


def get_config(argument=""):
    found, quick = common.words(argument)
    asked = [word for word in found if word in QUESTIONS]
    names = [word for word in found if word not in QUESTIONS]
    if len(asked) > 1:
        raise FieldError("--config", f"one question at a time, not {', '.join(asked)}")
    names = names or (("nope", "mrope") if quick else DEFAULT)
    options = {k: v for name in names for k, v in taken_by(name, OPTIONS).items()}
    config = common.config(
        "multimodal",
        encoding={"name": ",".join(names), **options},
        task={"name": "clips", "question": asked[0] if asked else "tone"},
        model={"kind": "encoder", "width": 64, "mlp": 2},
        train={"length": 4, "min_length": 2, "batch": 32, "steps": 1000, "lr": 5e-3, "chunk": 100},
        eval={"lengths": (2, 4, 8), "examples": 256},
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(batch=16, steps=40, warmup=5, chunk=20)
        config.eval.update(lengths=(4, 8), examples=32)
        config.seeds = 2
    return config
