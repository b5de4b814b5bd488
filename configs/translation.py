r"""An encoder-decoder that translates sentences of up to 3 clauses, tested on up to 8.

    python train.py --config=configs/translation.py                  # six well-known encodings
    python train.py --config=configs/translation.py:rope,t5
    python train.py --config=configs/translation.py:quick
    python train.py --config=configs/translation.py --config.sides.decoder=nope   # in the encoder
    python train.py --config=configs/translation.py --config.sides.cross=rope
    python train.py --config=configs/translation.py --config.task.name=reverse \
        --config.train.length=16 --config.eval.lengths="(8,16,32)"

Each encoding is that of both sides; `sides` names another for one of them, and the encoding of
cross-attention. Any task of questions and answers makes pairs. A translation is scored with teacher
forcing: it is an exact match if every token is the argmax, as in greedy decoding. The baseline
"grammar without order" knows the grammar and the words of the source, but not their order.
"""

from configs import common

DEFAULT = ("nope", "sinusoidal", "learned", "rope", "t5", "alibi")


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "translation",
        encoding={"name": ",".join(names or (("nope", "rope") if quick else DEFAULT))},
        model={"kind": "encoder_decoder", "width": 64},
        train={"length": 3, "min_length": 1, "batch": 64, "steps": 1500, "lr": 2e-3, "chunk": 100},
        eval={"lengths": (1, 2, 3, 4, 6, 8)},
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(length=2, batch=16, steps=60, warmup=10, chunk=20)
        config.eval.update(lengths=(2, 4), examples=32)
        config.seeds = 2
    return config
