"""The examples of the page on the kernels print what it says."""

import doctest

from posenc_jax.attention import kernels


def test_the_examples_of_the_page():
    result = doctest.testfile("README.md", package=kernels)
    assert result.failed == 0
    assert result.attempted > 15, "control: there are some"
