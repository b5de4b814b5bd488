"""Context extension of rotary: Llama of transformers with each of its scalings, and others."""

from collections.abc import Iterator

from .golden import Golden, count
from .rotary import llama, torch_rotary, x_rotary


def pi() -> Iterator[Golden]:
    for factor, time, head in ((4.0, 9, 8), (2.5, 5, 10)):
        yield llama(
            f"pi/llama {factor}", {"factor": factor}, {"factor": 1.0}, count(time), head,
            {"rope_type": "linear", "factor": factor},
        )  # fmt: skip
    yield x_rotary(
        "pi/x-transformers", "RotaryEmbedding(interpolation_factor)",
        {"factor": 3.0, "pairing": "interleaved"}, {"factor": 1.0}, count(7), 2,
        interpolation_factor=3.0,
    )  # fmt: skip


def ntk() -> Iterator[Golden]:
    yield x_rotary(
        "ntk/x-transformers", "RotaryEmbedding(base_rescale_factor)",
        {"factor": 3.0, "pairing": "interleaved"}, {"factor": 1.0}, count(7), 2,
        base_rescale_factor=3.0,
    )  # fmt: skip
    yield torch_rotary(
        "ntk/rotary-embedding-torch", "RotaryEmbedding(theta_rescale_factor)",
        {"factor": 8.0, "pairing": "interleaved"}, {"factor": 4.0}, count(9), 2,
        theta_rescale_factor=8.0,
    )  # fmt: skip


def dynamic_ntk() -> Iterator[Golden]:
    for alpha, time in ((1.0, 13), (2.0, 21), (2.0, 5)):
        wrong = {"length": 4} if time < 8 else {"alpha": 4.0}
        yield llama(
            f"dynamic_ntk/llama {alpha} {time}", {"length": 8, "alpha": alpha}, wrong,
            count(time), 8, {"rope_type": "dynamic", "factor": alpha}, length=8,
        )  # fmt: skip


def yarn() -> Iterator[Golden]:
    """The ramp alone, and with its temperature; ends rounded to whole pairs or not."""
    for ramp, factor, head in (("pairs_truncated", 4.0, 16), ("pairs", 8.0, 12)):
        options = {"factor": factor, "length": 512, "ramp": ramp}
        parameters = {
            "rope_type": "yarn", "factor": factor, "truncate": ramp != "pairs",
            "original_max_position_embeddings": 512,
        }  # fmt: skip
        wrong, pos, long = {"ramp": "turns"}, count(9, 200), int(512 * factor)
        yield llama(f"yarn/llama {ramp}", options, wrong, pos, head, parameters, long)
        bare = parameters | {"attention_factor": 1.0}
        yield llama(f"ntk_by_parts/llama {ramp}", options, wrong, pos, head, bare, long)
        both = {"mscale": 0.707, "mscale_all_dim": 2.0}
        yield llama(
            f"yarn/llama {ramp} mscale", options | both, {"mscale_all_dim": 0.0}, pos, head,
            parameters | both, long,
        )  # fmt: skip


def llama3() -> Iterator[Golden]:
    for factor, low, high, head in ((8.0, 1.0, 4.0, 16), (3.0, 2.0, 7.0, 10)):
        parameters = {
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": 512, "rope_theta": 5e5,
        }  # fmt: skip
        options = {"factor": factor, "low": low, "high": high, "length": 512}
        yield llama(
            f"llama3/llama {factor}", options, {"factor": 1.0}, count(9, 300), head, parameters,
            int(512 * factor),
        )  # fmt: skip


def longrope() -> Iterator[Golden]:
    short, long = [1.0, 1.25, 1.5, 2.0], [1.0, 2.5, 5.0, 6.0]
    for time, wrong in ((7, {"short": (1.0,) * 4}), (13, {"long": (1.0,) * 4})):
        parameters = {
            "rope_type": "longrope", "factor": 4.0, "short_factor": short, "long_factor": long,
            "original_max_position_embeddings": 8,
        }  # fmt: skip
        options = {"factor": 4.0, "length": 8, "short": short, "long": long}
        yield llama(
            f"longrope/llama {time}", options, wrong, count(time), 8, parameters, 32
        )  # fmt: skip
