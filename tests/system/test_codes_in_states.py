"""The code in the NaN of a state that a reset returns."""

import jax.numpy as jnp
import pytest

import hyjax as hj
from hyjax._testing import code_of_state, nan_unless


@pytest.mark.parametrize(
    "dtype, code",
    [(jnp.float64, "zeno"), (jnp.float32, "zeno"), (jnp.float16, "nonfinite"), (jnp.bfloat16, "nonfinite")],
)
def test_a_failure_has_a_code_in_every_precision(dtype, code):
    """A NaN of 16 bits has no room for it."""
    state = nan_unless(jnp.array([True, False]), jnp.ones(2, dtype), hj.RESULTS.zeno)
    assert state.dtype == dtype and state[0] == 1 and jnp.isnan(state[1])
    assert code_of_state(state) == code and code_of_state(state[:1]) == "successful"
    assert code_of_state(jnp.full(2, jnp.nan, dtype)) == "nonfinite"
