r"""What each extension of context does to a released model, before and after fine-tuning.

    python train.py --config=configs/pretrained.py                  # the model of this repository
    python train.py --config=configs/pretrained.py:quick
    python scripts/experiment_page.py RUN                           # its part of docs/pretrained.md
    python train.py --config=configs/pretrained.py --config.model.checkpoint=pythia-70m \
        --config.model.dtype=bfloat16 --config.task.name=file:book.txt \
        --config.task.stretch=1000000 --config.prompts="('passkey_english',)"

The checkpoint is a folder of Hugging Face with a decoder: config.json, safetensors, tokenizer.json.
It reads the same text in windows of 1, 2, 4 and 8 times its trained length, and prompts that hide a
key. Extensions are made for 4 times that length. A rotary model is read under pi, ntk, dynamic_ntk,
ntk_by_parts, yarn, llama3 and, if rope is all that its layers have, resonance, self_extend, rerope,
leaky_rerope and dual_chunk; one that was released with an extension under that, as phi3 with
longrope, and without; other models as they are. Then plain, pi, ntk and yarn are fine-tuned.
`train` has the published recipes in its docstring, in experiments/pretrained/config.py;
docs/pretrained.md has large models, and what the first command found.

The model of this repository reads bytes; scripts/pretrained_model.py makes it. Expect rerope to
read 8 times its length without fine-tuning, ntk and yarn 4 times after it, and no key to be found.

Takes 2 to 3 minutes on 2 cores, the quick variant about 12 seconds.
"""

from configs import common


def get_config(argument=""):
    quick = common.only_quick(argument)
    config = common.config("pretrained")
    if quick:
        config.task.stretch = 2048
        config.rows = ("pi", "yarn")
        config.train.update(rows=("pi",), steps=4, batch=2, warmup=2)
        config.eval.update(multiples=(1, 4), depths=2, examples=1)
    return config
