"""Three small sets of TensorFlow Datasets: texts, questions with answers, texts with labels."""

import numpy as np
import tensorflow_datasets as tfds

RNG = np.random.default_rng(0)
DOCUMENTS = {
    split: [bytes(RNG.integers(97, 123, n, dtype=np.uint8)) for n in RNG.integers(5, 90, count)]
    for split, count in {"train": 1200, "test": 60}.items()
}
DOCUMENTS["train"][0] = b"one\0two" + bytes(range(97, 117)) * 20
COMMANDS = [
    (b"walk" + b" twice" * (i % 4), b" ".join([b"I_WALK"] * (i % 7 + 1))) for i in range(50)
]


class Documents(tfds.core.GeneratorBasedBuilder):
    """Text without a validation split, and a feature beside it."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text, title = tfds.features.Text(), tfds.features.Text()
        features = tfds.features.FeaturesDict({"text": text, "title": title})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in DOCUMENTS}

    def _generate_examples(self, split):
        for i, text in enumerate(DOCUMENTS[split]):
            yield i, {"text": text, "title": f"{i}"}


class Commands(tfds.core.GeneratorBasedBuilder):
    """Pairs of the form that SCAN has."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        names = ("commands", "actions")
        features = tfds.features.FeaturesDict({name: tfds.features.Text() for name in names})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples() for split in ("train", "test")}

    def _generate_examples(self):
        for i, (command, actions) in enumerate(COMMANDS):
            yield i, {"commands": command, "actions": actions}


class Reviews(tfds.core.GeneratorBasedBuilder):
    """Texts with class labels."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        label = tfds.features.ClassLabel(names=["bad", "good"])
        features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": label})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in ("train", "test")}

    def _generate_examples(self, split):
        for i in range(40):
            yield i, {"text": f"{split} review {i}", "label": i % 2}
