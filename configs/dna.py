r"""An encoder on DNA: hidden bases that depend on the reading frame or on an intron, spaced motifs.

    python train.py --config=configs/dna.py                       # reading_frame
    python train.py --config=configs/dna.py:splice
    python train.py --config=configs/dna.py:spacing,rope,shaw     # one task, any encodings
    python train.py --config=configs/dna.py:quick
    python train.py --config=configs/dna.py --config.task.name=file:genome.fa \
        --config.task.masked=0.15 --config.train.length=64 --config.train.min_length=64 \
        --config.eval.lengths="(64,128,256)"
    python scripts/experiment_page.py RUN RUN RUN                 # docs/dna.md, a run for each task

`reading_frame` and `splice` hide bases that the others determine; `spacing` asks for a label. They
are described in posenc_jax/lab/tasks/dna.py. Sequences at test are up to four times as long as in
training. A FASTA file may hold DNA or protein; a share of its letters is hidden.

Expect `rope` to be right on all at the trained length, and on 0.86, 0.98, 1.00 at four times that
(`reading_frame`, `splice`, `spacing`). Without positions expect 0.37, 0.49 and 0.51 at the trained
length. Each task takes 3 to 4 minutes on 2 cores.
"""

from configs import common

DEFAULT = ("nope", "sinusoidal", "learned", "rope", "t5", "alibi")
# The trained sizes and those of the test: codons, introns, bases.
SIZES = {
    "reading_frame": ((6, 12), (6, 12, 24, 48)),
    "splice": ((1, 3), (1, 3, 6, 12)),
    "spacing": ((16, 32), (16, 32, 64, 128)),
}


def get_config(argument=""):
    words, quick = common.words(argument)
    chosen, names = common.pick(words, SIZES)
    task = chosen or "reading_frame"
    (shortest, longest), lengths = SIZES[task]
    config = common.config(
        "dna",
        options="setting",
        encoding={"name": ",".join(names or (("nope", "rope") if quick else DEFAULT))},
        task={"name": task},
        model={"kind": "encoder", "width": 48, "mlp": 2},
        train={
            "length": longest,
            "min_length": shortest,
            "batch": 64,
            "steps": 400,
            "lr": 4e-3,
            "chunk": 100,
        },
        eval={"lengths": lengths, "examples": 256},
    )
    if quick:
        config.model.update(width=16, layers=1)
        config.train.update(batch=16, steps=40, warmup=5, chunk=20)
        config.eval.update(lengths=lengths[1:3], examples=32)
        config.seeds = 2
    return config
