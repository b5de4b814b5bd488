"""What the configs share: every field with its default, and how an argument is read."""

from ml_collections import ConfigDict


def length_extrapolation() -> ConfigDict:
    """Train at one length, evaluate at many: a decoder on the bytes of the standard library."""
    return ConfigDict(
        {
            "experiment": "length_extrapolation",
            "encoding": {"name": "rope"},
            "task": {"name": "stdlib", "stretch": 32768},
            "model": {
                "kind": "decoder",
                "width": 128,
                "heads": 4,
                "layers": 2,
                "mlp": 4,
                "dtype": "float32",
                "masks": {"attention": True, "output": True, "loss": True},
            },
            "train": {
                "length": 128,
                "min_length": 128,
                "batch": 32,
                "steps": 250,
                "lr": 3e-3,
                "warmup": 25,
                "decay": 0.01,
                "clip": 1.0,
                "chunk": 20,
                "fsdp": False,
            },
            "eval": {
                "lengths": (128, 256, 512, 1024, 2048),
                "variants": (),
                "examples": 256,
                "tokens": 8192,
            },
            "checkpoint": {"seconds": 60.0, "keep": 2},
            "seeds": 3,
            "first_seed": 0,
            "wandb": {
                "mode": "disabled",
                "project": "posenc_jax",
                "group": "",
                "job_type": "",
                "tags": (),
                "checkpoint": False,
            },
        }
    )


def words(argument: str) -> tuple[list[str], bool]:
    """The words of "a,b,quick", and whether `quick` is among them."""
    found = [word.strip() for word in argument.split(",") if word.strip()]
    return [word for word in found if word != "quick"], "quick" in found


def only_quick(argument: str) -> bool:
    """For a config that takes `quick` and nothing else. ValueError names another word."""
    rest, quick = words(argument)
    if rest:
        raise ValueError(f"--config: argument {rest[0]!r} is not known; choices: quick")
    return quick


def quick(config: ConfigDict) -> ConfigDict:
    """The same experiment, small enough to end in under 20 seconds on two cores."""
    config.model.update(width=32, heads=4, layers=1)
    config.train.update(length=32, min_length=32, batch=16, steps=60, warmup=10, chunk=20)
    config.eval.update(lengths=(32, 128), examples=32)
    config.seeds = 2
    return config
