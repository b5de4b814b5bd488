r"""Orderings that papers published, posed at a size that two CPU cores can train.

    python train.py --config=configs/published.py                       # all rows
    python train.py --config=configs/published.py:copy_repeated,press_2x  # these
    python train.py --config=configs/published.py --config.rows=reverse
    python train.py --config=configs/published.py:quick
    python scripts/experiment_page.py RUN...                            # the page in docs/

Each row has the methods of one table or figure of a paper, in one setting of ours. Each method is
trained with 3 seeds, and scored at half of its budget and at all of it; the first seed tries two
learning rates. A rank correlation with the paper's numbers gives the verdict: same order, partly
the same, reversed, or not decided. Rows of one setting share their trainings. A run that is started
again goes on with the next method.

All rows are sized for about 4 hours of 2 free cores, and may be measured in several runs. `quick`
takes about 40 seconds, trains for a few steps only, and decides nothing.
"""

from configs import common


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config("published", rows=",".join(names) or ("heo_trained" if quick else "all"))
    if quick:
        config.update(budget=0.004, examples=32, rates=(3e-3,), seeds=2)
    return config
