"""The copy of a run in Weights & Biases: a W&B run for each training, and a report."""
