"""What does not change the output of a model: another order of its tokens, and padding.

permutation      which methods tell a model the order of its tokens
padding_leakage  what padding changes under each subset of three masks
released_encoder.py  a released encoder, which both read in place of small models, and sentences
small_models.py  the encodings of the small models of both, and the positions of their tokens
"""
