"""What tells a model the order of its tokens, and what does not: every method in the catalogue.

1. The counterexample. Pairs (a, b) and (b, a) of different symbols; the label says which of the two
   is smaller. A bidirectional Transformer with mean pooling and no positions gives both the same
   output whatever its weights, so exactly half of all pairs come out right. A causal mask tells
   them apart, so does an LSTM, and so should an encoding.
2. Three different symbols: in which of the 6 orders they are.
3. The general form: the largest |f(Px) - P f(x)| over random permutations P, before and after
   training, in float32 and float64. In the control each position moves along with its token: a
   model that reads positions alone is then equivariant again.
4. Real text: an encoder predicts hidden bytes, with and without positions.

Methods have the `example` options of their card, which fit a small model. A method that only moves
positions is put before `rope`; positions of several axes lie on a near-square grid.
"""
