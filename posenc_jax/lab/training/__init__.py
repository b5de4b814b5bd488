"""Train and evaluate: the step, the loop, scores by length."""
