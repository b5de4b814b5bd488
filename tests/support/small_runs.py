"""`python -m tests.support.small_runs NAME --workdir=FOLDER FIELD=VALUE...`: a run of a few seconds
of an experiment that trains one model at a time.

With JAX_NUM_PROCESSES and its like it is shared by several processes.
"""

import argparse
import ast
import importlib
import sys
from typing import Any

from ml_collections import ConfigDict

from experiments import job

# The argument of each config: two encodings, of which one may have two rows.
COMPARISONS = {
    "classification": "nope,rope,quick",
    "completion": "nope,rope,quick",
    "dna": "nope,rope,quick",
    "images": "nope,axial,quick",
    "long_memory": "nope,rope,quick",
    "multimodal": "nope,rope,quick",
    "text": "nope,rope,quick",
    "translation": "nope,rope,quick",
    "vision": "where,nope,swin_2d,quick",
}


def small(name: str) -> dict[str, Any]:
    """The config of a run of four steps; of a comparison with two seeds."""
    get_config = importlib.import_module(f"configs.{name}").get_config
    config: Any = get_config(COMPARISONS.get(name, "quick"))
    config.train.update(steps=4, batch=4, warmup=1)
    if name in COMPARISONS:
        config.seeds = 2
        config.train.chunk = 2
        config.eval.lengths = (config.train.length,)
        config.checkpoint.at = (2,)
    else:
        config.update(rows=("yarn",), prompts=("passkey",))
        config.train.rows = ("yarn",)
        config.eval.update(multiples=(1, 2), depths=2, examples=1)
    return config.to_dict()


def main() -> int:
    """Returns the exit status, as of train.py."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--workdir")
    parser.add_argument("changes", nargs="*")
    flags = parser.parse_intermixed_args()
    config, fields = ConfigDict(small(flags.name)), (text.split("=", 1) for text in flags.changes)
    config.update_from_flattened_dict({name: ast.literal_eval(value) for name, value in fields})
    return job.run(config.to_dict(), flags.workdir, named=True)


if __name__ == "__main__":
    sys.exit(main())
