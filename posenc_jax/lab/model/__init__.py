"""A small Transformer and an LSTM as pure functions."""
