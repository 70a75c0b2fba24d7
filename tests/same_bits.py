"""Results that are equal to the last bit."""

import jax
import numpy as np


def require_equal(one, other):
    """The same structure, and the same types, dtypes, shapes and bits."""
    (leaves, tree), (others, tree_of_other) = jax.tree.flatten(one), jax.tree.flatten(other)
    assert tree == tree_of_other and hash(tree) == hash(tree_of_other)
    for a, b in zip(leaves, others, strict=True):
        assert type(a) is type(b), (a, b)
        if isinstance(a, jax.Array | np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        else:
            assert a is b or a == b
