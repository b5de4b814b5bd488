"""BLEU of translations that are decoded greedily, by sacrebleu (Post 2018, arXiv 1804.08771)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sacrebleu.metrics.bleu import BLEU

from experiments.compare.translation.config import Config
from posenc_jax.lab import tasks
from posenc_jax.lab.hosts.devices import replicated
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.hosts.processes import fetch
from posenc_jax.lab.model.decoding import greedy
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.question_answer import text
from posenc_jax.lab.tasks.task import EOS, SEP, Pair
from posenc_jax.lab.training.evaluation import shared_data
from posenc_jax.layout import full


class Translator:
    """Decodes the first test examples of a size, as many as fit into one forward pass.

    Bytes are joined to text and tokenized as sacrebleu does by default. Words of a generated
    language are numbers, and are not tokenized further.
    """

    def __init__(self, config: Config, task: tasks.Task, model: Model):
        self._task, self._width = task, int(task.width(max(config.eval.lengths)))
        self._rows = min(config.eval.examples, max(1, config.eval.tokens // self._width))
        self._of_bytes, self._metric = _of_bytes(config), _bleu(config)
        self._data = shared_data(task)
        self._decode = jax.jit(self._decoded(model), out_shardings=replicated())

    def __call__(self, params: Any, size: int) -> list[float]:
        """BLEU, 0 to 100, of each seed's translations of one size; params [S, ...]."""
        rows = min(self._rows, self._task.examples(size) or self._rows)
        inputs = params, self._data, np.int32(size)
        token_SBN, target_BT, answer_BT = fetch(self._decode(*inputs))
        wanted = [self._text(t_T[a_T]) for t_T, a_T in zip(target_BT, answer_BT, strict=True)][
            :rows
        ]
        score = lambda token_BN: self._metric.corpus_score(
            [self._text(token_N) for token_N in token_BN[:rows]], [wanted]
        )
        return [score(token_BN).score for token_BN in token_SBN]

    def _decoded(self, model):
        index_B = jnp.arange(self._rows, dtype=jnp.int32)

        def of_seed(data, size, params):
            batch: Any = self._task.test(data, index_B, size, self._width)
            prompt = jnp.full((self._rows, 1), SEP, jnp.int32)
            tokens = Pair(batch.tokens_BT.source, prompt)
            at = Pair(batch.layout.source, full(self._rows, 1))
            return greedy(model, params, tokens, at, self._width, EOS)[0]

        def every(params, data, size):
            batch = self._task.test(data, index_B, size, self._width)
            decoded_SBN = over_seeds(of_seed, params, given=(data, size))
            return decoded_SBN, batch.targets_BT, batch.weights_BT > 0

        return every

    def _text(self, token_N: np.ndarray) -> str:
        if self._of_bytes:
            return text(token_N.tolist())
        ended_N = np.cumsum(token_N == EOS) > 0
        return " ".join(map(str, token_N[~ended_N].tolist()))


def signature(config: Config) -> str:
    """The settings of sacrebleu, which depend on the task alone."""
    metric = _bleu(config)
    metric.corpus_score(["one"], [["one"]])  # it counts the references only then
    return str(metric.get_signature())


def _of_bytes(config: Config) -> bool:
    return config.task.name not in tasks.CATALOG


def _bleu(config: Config) -> BLEU:
    return BLEU(tokenize="13a" if _of_bytes(config) else "none")
