"""What padding changes under each of the 8 subsets of three masks.

The masks are those of ModelConfig: padding as keys in attention, outputs at padding, targets in the
loss. A small model learns two tasks at once, on sequences padded to one width with the token 0: to
predict the token before each token, and from the mean over tokens the most frequent symbol. Each
sequence is padded on a random side. Then, for models with each subset, untrained and trained, on
sequences of one length that are padded on one side, one thing changes:

  content  the zeros in the padding become random symbols.
  amount   all padding is removed.

Each measurement is the largest change over a batch of: the outputs of real tokens, the pooled
output, the loss of the tokens, the gradient of that loss. The page also has the share of attention
from real tokens to padding, and the accuracy with no padding, with padding as in training, with
random symbols as padding, and with more padding.
"""
