"""Text as the tokens of a tokenizer: prepared once, read by memory maps, scored in bits per byte.

module           content
documents.py     the documents of a folder, a text file, a .jsonl file or a TFDS set
tokenizer.py     tokenizers whose tokens spell the bytes of a text; training of a byte-level BPE
preparing.py     writes a folder: tokenizer.json, shards of token ids, manifest.json
shards.py        reads such a folder
permutation.py   the order of the training windows, by seed and epoch
task.py          the tasks `tokens:PATH` and `stdlib_tokens`
"""
