"""Trains encoder-decoders on pairs, and tests them on longer ones.

A row of the results is an encoding. It is that of both sides, or of one side where the config names
another for the other side. Cross-attention has the encoding that `sides.cross` names.
"""
