"""Train and evaluate: optimizers by name, the step, the trainer, scores by length."""
