"""What padding changes: all 8 subsets of three masks, by measurement.

The masks are those of ModelConfig: padding as keys in attention, outputs at padding, targets in the
loss. A small model learns two things at once from sequences that are padded to one width with the
token 0: the token before each token, and from the mean over tokens the most frequent symbol. Then
two things are changed for models with each subset, untrained and trained, on sequences of one
length:

  content  the zeros in the padding become random symbols.
  amount   all padding is removed.

Each measurement is the largest change over a batch of: the outputs of real tokens, the pooled
output, the loss of the tokens, the gradient of that loss. The page also gives the share of
attention that real tokens pay to padding, and the accuracy with no padding, with padding as in
training, with other content, and with more padding.
"""
