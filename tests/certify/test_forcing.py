"""The period of a forcing, from how the functions of a system use the time."""

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import mpmath
import pytest
from jaxtyping import Array, Float

import hyjax as hj
from hyjax._testing import forcing_period, PRECISION
from hyjax.models._common import parameter


class Drive(eqx.Module):
    frequency: Float[Array, ""] = parameter(1.9, "1", "frequency of the drive")
    other: Float[Array, ""] = parameter(2.7, "1", "another frequency")


def half(t, x, params):
    return jnp.sin(params.frequency * t / 2 + x[0])


def double(t, x, params):
    return jnp.cos(2 * params.frequency * t)


def slow(t, x, params):
    return jnp.sin(params.other * t)


def sawtooth(t, x, params):
    return 1 - t * params.frequency


def still(t, x, params):
    return x[0]


def forcing(drive, guard, laps=1):
    """Of a system with a drive and a guard, near so many periods of its frequency."""

    def rate(t, x, params):
        return jnp.stack([-x[0] + drive(t, x, params)])

    system = hj.HybridSystem(
        modes={"free": hj.Mode(rate, ("x",))},
        transitions=(hj.Transition("free", "free", guard=guard, reset=lambda t, x, params: -x),),
    )
    period = jnp.asarray(laps * 6.283185307 / 1.9)
    return forcing_period(SimpleNamespace(system=system, params=Drive(), period=period, sequence=("free",)))


@pytest.mark.parametrize("laps", [2, 4])
def test_multiples_of_one_frequency(laps):
    period, repeats = forcing(half, double, laps)
    with mpmath.workprec(2 * PRECISION):
        exact = laps * 2 * mpmath.pi / mpmath.mpf(1.9)
        middle, radius = (mpmath.mpf(each._mpf_) for each in (period.mid(), period.rad()))
        assert abs(exact - middle) <= radius < mpmath.mpf(2) ** (7 - PRECISION)
    assert "assumed" not in repeats


def test_what_depends_on_the_time_otherwise_is_named():
    period, repeats = forcing(double, sawtooth)
    assert period.rad() < 2.0 ** (7 - PRECISION) and "A guard of mode 'free'" in repeats and "assumed" in repeats


@pytest.mark.parametrize("drive, guard", [(half, still), (slow, still), (double, slow), (sawtooth, still)])
def test_a_period_that_is_not_seen_is_the_float(drive, guard):
    # Half a turn of a sine; another frequency, alone and with the first; no sine at all.
    period, repeats = forcing(drive, guard)
    assert period == 6.283185307 / 1.9 and repr(6.283185307 / 1.9) in repeats
