"""The copy of a run in Weights & Biases, and its dashboard."""
