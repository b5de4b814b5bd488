"""What tells a model the order of its tokens, and what does not: every method in the catalogue.

1. Pairs (a, b) and (b, a) of different symbols; the label is which of the two is smaller. A
   bidirectional Transformer with mean pooling and no positions gives both the same output for any
   weights, so its accuracy is exactly one half. A causal mask, an LSTM and most encodings
   distinguish them.
2. Three different symbols; the label is in which of the 6 orders they are.
3. Equivariance: the largest |f(Px) - P f(x)| over random permutations P, before and after training,
   in float32 and float64. In the control each token carries its position along: a model that reads
   positions only is then equivariant again.
4. Real text: an encoder predicts hidden bytes, with and without positions.

Methods have the `example` options of their card, which suit a small model. A method that only
changes positions is put before `rope`; positions of several axes lie on a near-square grid.
"""
