"""Small models of transformers as folders with drawn weights, and their logits."""

import json
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .drawn import digest, drawn

IDS = 29
LENGTHS = 9, 6  # of two documents
SMALL = {
    "vocab_size": IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "max_position_embeddings": 32,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2}
WINDOWED = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16, "rope_theta": 500.0,
}  # fmt: skip
SLOWER = {"rope_theta": 50.0}
GRANITE = {
    "rope_theta": 1000.0, "attention_multiplier": 0.5, "embedding_multiplier": 3,
    "residual_multiplier": 0.4, "logits_scaling": 2,
}  # fmt: skip
T5 = {
    "vocab_size": IDS, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
}  # fmt: skip

# case -> (model_type, fields of its config.json, fields of a wrong one; {}: without positions)
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert": ("bert", SMALL, {}),
    "bloom": ("bloom", {"vocab_size": IDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}, {}),
    "cohere": ("cohere", {**GROUPED, "logit_scale": 0.25, "rope_theta": 1000.0}, SLOWER),
    "cohere2": ("cohere2", {**GROUPED, **WINDOWED, "logit_scale": 0.25}, {"sliding_window": 5}),
    "deberta-v2": (
        "deberta-v2",
        {**SMALL, "relative_attention": True, "position_biased_input": False,
         "pos_att_type": ["p2c", "c2p"], "position_buckets": 4, "max_relative_positions": 9,
         "share_att_key": True, "norm_rel_ebd": "layer_norm"},
        {"max_relative_positions": 4},
    ),
    "gemma": ("gemma", {**GROUPED, "head_dim": 12, "rope_theta": 1000.0}, SLOWER),
    "gemma2": (
        "gemma2",
        {**GROUPED, **WINDOWED, "head_dim": 12, "query_pre_attn_scalar": 8,
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        SLOWER,
    ),
    "gemma3": (
        "gemma3_text",
        {**GROUPED, **WINDOWED, "head_dim": 12, "query_pre_attn_scalar": 8, "rope_theta": 1000.0,
         "rope_local_base_freq": 100.0},
        {"rope_local_base_freq": 10.0},
    ),
    "glm": (
        "glm",
        {**GROUPED, "head_dim": 12, "pad_token_id": 0, "rope_theta": 1000.0},
        {"partial_rotary_factor": 1.0},
    ),
    "glm4": (
        "glm4",
        {**GROUPED, "head_dim": 12, "pad_token_id": 0, "attention_bias": False,
         "rope_theta": 1000.0},
        SLOWER,
    ),
    "gpt2": ("gpt2", {"vocab_size": IDS, "n_embd": 32, "n_layer": 2, "n_head": 4,
                      "n_positions": 32}, {}),
    "gpt_neox": ("gpt_neox", {**SMALL, "rotary_pct": 0.5, "rotary_emb_base": 100}, SLOWER),
    "gpt_neox serial": (
        "gpt_neox",
        {**SMALL, "rotary_pct": 1.0, "use_parallel_residual": False, "attention_bias": False},
        SLOWER,
    ),
    "granite": (
        "granite",
        {**GROUPED, **GRANITE, "tie_word_embeddings": True, "attention_bias": True},
        SLOWER,
    ),
    "granite untied": ("granite", {**GROUPED, **GRANITE}, SLOWER),
    "llama": ("llama", {**GROUPED, "rope_theta": 1000.0}, SLOWER),
    "llama 3": (
        "llama",
        {**GROUPED, "rope_scaling": LLAMA3, "tie_word_embeddings": True, "attention_bias": True},
        {"rope_scaling": None, "rope_theta": 500.0},
    ),
    "mistral": ("mistral", {**GROUPED, "head_dim": 12, "sliding_window": 4}, {"sliding_window": 5}),
    "modernbert": (
        "modernbert",
        {**SMALL, "pad_token_id": 0, "local_attention": 6, "global_attn_every_n_layers": 2},
        {"local_attention": 8},
    ),
    "mpt": ("mpt", {"vocab_size": IDS, "d_model": 32, "n_layers": 2, "n_heads": 4}, {}),
    "olmo2": ("olmo2", {**GROUPED, "rope_theta": 1000.0}, SLOWER),
    "olmo3": ("olmo3", {**GROUPED, **WINDOWED, "rope_theta": 1000.0}, SLOWER),
    "phi3": (
        "phi3",
        {**GROUPED, "pad_token_id": 0, "sliding_window": 4, "partial_rotary_factor": 0.75},
        {"sliding_window": 5},
    ),
    "qwen2": ("qwen2", {**GROUPED, "rope_theta": 1000.0}, SLOWER),
    "qwen3": ("qwen3", {**GROUPED, "head_dim": 12, "rope_theta": 1000.0}, SLOWER),
    "roberta": (
        "roberta",
        {**SMALL, "pad_token_id": 1, "max_position_embeddings": 34, "type_vocab_size": 1},
        {},
    ),
    "smollm3": (
        "smollm3",
        {**GROUPED, "pad_token_id": 0, "no_rope_layers": [1, 0], "rope_theta": 1000.0},
        {"no_rope_layers": [0, 1]},
    ),
    "t5": ("t5", T5, {"relative_attention_max_distance": 20}),
    "t5 gated": (
        "t5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"relative_attention_max_distance": 20},
    ),
    "t5 gated saved": (
        "t5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"relative_attention_max_distance": 20},
    ),
    "xlm-roberta": (
        "xlm-roberta",
        {**SMALL, "pad_token_id": 1, "max_position_embeddings": 34, "type_vocab_size": 1},
        {},
    ),
}  # fmt: skip
MASKED = "bert", "roberta", "xlm-roberta", "deberta-v2", "modernbert"  # types
# Cases that transformers reads from an older file and saves again, and what it then has.
RESAVED = ("t5 gated saved",)
# Other fields of the config with which our code saves a case.
SAVED = {"deberta-v2": {"share_att_key": False, "norm_rel_ebd": "none"}}


def documents() -> list[torch.Tensor]:
    """Returns two documents [1, T]. No token is padding to any of the models."""
    return [(torch.arange(n)[None] * (5 + 2 * n) + n) % (IDS - 3) + 3 for n in LENGTHS]


def auto_class(kind: str) -> Any:
    """Returns the class of transformers that makes a whole model of this type."""
    head = "Seq2SeqLM" if kind == "t5" else "MaskedLM" if kind in MASKED else "CausalLM"
    return getattr(transformers, f"AutoModelFor{head}")


def opened(folder: pathlib.Path, config: dict[str, Any]) -> Any:
    """Returns the model that transformers reads from a folder, all weights of it."""
    model, told = auto_class(config["model_type"]).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    wrong = {what: names for what, names in told.items() if names}
    assert not wrong, wrong
    return model.eval()


def logits(model) -> dict[str, np.ndarray]:
    """Returns the logits [T, V] of both documents; of T5 those of either after the other."""
    logits_by_document, both = {}, documents()
    for n, ids in enumerate(both):
        inputs = {"input_ids": ids}
        if model.config.is_encoder_decoder:
            inputs = {"input_ids": both[1 - n], "decoder_input_ids": ids}
        logits_by_document[str(n)] = model(**inputs, use_cache=False).logits[0].numpy()
    return logits_by_document


def written(folder: pathlib.Path, case: str) -> dict[str, Any]:
    """Writes a case as a folder with drawn weights, and returns the shapes of its tensors."""
    kind, fields, _ = CASES[case]
    config = {"model_type": kind, **fields}
    model_config = CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))
    auto_class(kind).from_config(model_config).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    if case.startswith("t5 gated"):
        shapes["lm_head.weight"] = [IDS, 32]
    save_file(drawn(case, shapes), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    if case in RESAVED:
        opened(folder, config).save_pretrained(folder)
        with safe_open(folder / "model.safetensors", "np") as file:
            assert {*file.keys()} == {*shapes}
    return shapes


def checkpoints(only: str | None = None) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """A row of the manifest, and logits, of each model, or of one case alone."""
    for case, (_, _, wrong) in CASES.items():
        if only not in (None, case):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shapes = written(folder, case)
            config = json.loads((folder / "config.json").read_text())
            frozen = logits(opened(folder, config))
        row = {"case": case, "config": config, "wrong": wrong, "tensors": shapes}
        row["saves"] = {**config, **SAVED.get(case, {})}
        print(case, *(f"{np.abs(x).mean():.3f}" for x in frozen.values()), flush=True)
        yield row, frozen


def check_saved(folder: pathlib.Path, frozen: dict[str, np.ndarray]) -> dict[str, str]:
    """Returns the digest of each case that our code saved, if its logits are the frozen ones."""
    digests = {}
    for case, (kind, _, _) in CASES.items():
        if not (folder / case).exists():
            continue
        config = json.loads((folder / case / "config.json").read_text())
        assert config["model_type"] == kind
        for name, logits_TV in logits(opened(folder / case, config)).items():
            np.testing.assert_allclose(logits_TV, frozen[f"{case}/{name}"], rtol=0, atol=1e-5)
        digests[case] = digest(folder / case)
    return digests
