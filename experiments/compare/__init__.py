"""Encodings are trained, and the same weights evaluated under several conditions, and compared.

A condition is a length, a resolution, another encoding, a way of reading, or the control, in which
the tokens are shuffled. A task brings its own fields, rows and pictures in a package.

fields.py      the fields that all share, and what they refuse
comparison.py  trains and evaluates the rows of a comparison
run.py         the rows of encoders that read whole sequences
page.py        the report and the page with the control of shuffled examples

length_extrapolation  text and algorithmic tasks, at longer lengths and under other encodings
classification, dna   labels of texts, hidden bases: encoders on whole sequences
translation           an encoder-decoder, whose translations are also decoded
multimodal            clips of frames, tones and text, with positions of three axes
completion            Python code, by the place in the file
images, vision        handwritten digits, by resolution; questions about a canvas
long_memory           documents of many windows, in three ways of reading
text                  tokens: what more context is worth, recall of it, sinks, massive values
"""
