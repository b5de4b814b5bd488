r"""Digits on a larger canvas: what is it, where is it, which pixels are its, and drawing one.

    python train.py --config=configs/vision.py                     # what: its label
    python train.py --config=configs/vision.py:where               # its third of rows and columns
    python train.py --config=configs/vision.py:which               # the pixels of the left of two
    python train.py --config=configs/vision.py:draw                # pixel by pixel
    python train.py --config=configs/vision.py:where,axial,mixed   # any methods
    python train.py --config=configs/vision.py:quick
    python train.py --config=configs/vision.py:which --config.window=4
    python train.py --config=configs/vision.py --config.task.name=canvas:pictures.npz \
        --config.train.length=10 --config.train.min_length=10 --config.eval.lengths="(10,14)"
    python scripts/experiment_page.py RUN RUN RUN RUN              # docs/vision.md, one of each

Lengths are patches along a side of the canvas. A digit has 8 x 8 pixels; a patch has 4 x 4 of them
in `what` and `where`, 2 x 2 in `which`, and one in `draw`. Canvases are up to twice as wide at
test. `swin_2d` also runs in shifted windows of 3 x 3 patches. In the control the patches are
shuffled. A file has the arrays `pixels` and `labels`.

Expect `what` to need no positions (0.97 without), and `where`, `which` and `draw` to need them:
with `axial` 1.00, 1.00 and 0.32 bits a pixel, without positions 0.15, 0.50 and 0.58. Each question
takes 3 to 4 minutes on 2 cores.
"""

from configs import common

DEFAULT = ("nope", "learned", "rope", "sinusoidal_2d", "axial", "swin_2d")
# Pixels along a side of a patch, the trained sizes, those of the test, rows of a batch, steps.
QUESTIONS = {
    "what": (4, (4, 4), (4, 6, 8), 32, 1200),
    "where": (4, (4, 7), (4, 7, 10, 14), 32, 300),
    "which": (2, (8, 9), (9, 12, 15), 16, 300),
    "draw": (1, (10, 10), (10, 12, 16), 16, 300),
}


def get_config(argument=""):
    words, quick = common.words(argument)
    chosen, names = common.pick(words, QUESTIONS)
    question = chosen or "what"
    patch, (shortest, longest), lengths, batch, steps = QUESTIONS[question]
    config = common.config(
        "vision",
        encoding={"name": ",".join(names or (("nope", "axial") if quick else DEFAULT))},
        task={"name": "canvas", "question": question, "patch": patch},
        model={"kind": "decoder" if question == "draw" else "encoder", "width": 48, "mlp": 2},
        train={
            "length": longest,
            "min_length": shortest,
            "batch": batch,
            "steps": steps,
            "lr": 5e-3,
            "decay": 0.3,
            "chunk": 100,
        },
        eval={"lengths": lengths, "examples": 256},
    )
    if quick:
        config.model.update(width=16, layers=1)
        config.train.update(batch=8, steps=40, warmup=5, chunk=20)
        config.eval.update(lengths=(longest, lengths[-1]), examples=16)
        config.seeds = 2
    return config
