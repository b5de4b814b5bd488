"""Trains encoder-decoders on pairs, and tests them on longer ones.

A row of the results is an encoding. It is that of both sides, or of one side where the config names
another for the other side. Cross-attention has the encoding that `sides.cross` names.

The scores of tokens are those of teacher forcing; BLEU is that of translations decoded greedily. In
the control the words of the source are shuffled.
"""
