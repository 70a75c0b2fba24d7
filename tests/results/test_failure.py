"""Failures raise a `SolveError` under every transformation that leaves the codes known, and equinox's error under `jit`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import hyjax as hj
from hyjax._testing import codes_only, raise_failure

RESULTS = hj.RESULTS


class Found(eqx.Module):
    x: jax.Array
    result: RESULTS


def checked(x):
    """Fails where the first component is larger than 100."""
    found = Found(2 * x, RESULTS.where(x[0] > 100, RESULTS.zeno, RESULTS.successful))
    return raise_failure("checked", found, None, (x, x[0]), lambda about: f"x = {about[0]}").x


GOOD = jnp.ones((4, 3))
ONE_BAD = GOOD.at[2, 0].set(200.0)
KNOWN = {
    "vmap": jax.vmap(checked),
    "nested vmap": lambda x: jax.vmap(jax.vmap(checked))(x[:, None])[:, 0],
    "vmap of jacfwd": jax.vmap(lambda x: jax.jacfwd(checked)(x) @ x),
    "vmap of jacrev": jax.vmap(lambda x: jax.jacrev(checked)(x) @ x),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_lane_that_fails(name):
    assert jnp.array_equal(KNOWN[name](GOOD), 2 * GOOD)
    with pytest.raises(hj.SolveError, match="1 of 4 lanes") as raised:
        KNOWN[name](ONE_BAD)
    text, error = str(raised.value), raised.value
    assert isinstance(error, hj.SolveError) and error.codes == ("zeno",) and error.result is None
    assert "lane 2" in text and "lane 0" not in text and RESULTS[RESULTS.zeno] in text


def test_codes_alone():
    """As for the functions of a user in a sweep: a lane that fails is NaN with its code, and the others go on."""
    with codes_only():
        assert jnp.array_equal(jax.vmap(checked)(ONE_BAD), 2 * ONE_BAD)
        assert jnp.array_equal(jax.jit(jax.vmap(checked))(ONE_BAD), 2 * ONE_BAD)
    with pytest.raises(hj.SolveError):
        jax.vmap(checked)(ONE_BAD)


def test_one_value():
    assert jnp.array_equal(checked(GOOD[0]), 2 * GOOD[0])
    with pytest.raises(hj.SolveError, match="checked: zeno: ") as raised:
        checked(ONE_BAD[2])
    error = raised.value
    assert isinstance(error, hj.SolveError)
    assert isinstance(error.result, Found) and error.result.x[0] == 400 and "x = [200." in str(error)


@pytest.mark.parametrize("transform", [jax.jit, eqx.filter_jit])
def test_under_jit(transform):
    run = transform(jax.vmap(checked))
    assert jnp.array_equal(run(GOOD), 2 * GOOD)
    with pytest.raises(Exception, match="Events accumulate") as raised:
        jax.block_until_ready(run(ONE_BAD))
    assert not isinstance(raised.value, hj.SolveError)


def test_what_is_found_comes_with_the_error():
    from hyjax.models import bouncing_ball as ball

    with pytest.raises(hj.SolveError, match=r"at t = \d.* in mode 'flight' after 3 jumps, x = \[") as raised:
        hj.simulate(ball.system, jnp.array([1.0, 0.0]), ball.Params(), mode="flight", t1=4.0, max_jumps=3)
    error = raised.value
    assert isinstance(error, hj.SolveError)
    assert error.codes == ("max_jumps_reached",) and error.result.jumps == 3
