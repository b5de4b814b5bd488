"""Trains at one length and evaluates the same weights at many longer ones.

Each encoding named in the config is trained in turn, on the same batches for the same seeds. With
`eval.variants` the trained weights are evaluated under other encodings as well, such as the context
extensions of RoPE: an option `factor` is then the evaluated length over the trained one, an option
`length` the trained length.
"""
