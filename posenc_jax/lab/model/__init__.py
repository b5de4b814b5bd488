"""A small Transformer, an encoder-decoder and an LSTM as pure functions; decoding; released
models.
"""
