"""Comparison of the numbers of Bhounsule (2014) with those of hyjax and an independent reference of 35 digits.

python examples/papers/bhounsule.py
"""

import argparse

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from session import options

import hyjax as hj
from hyjax.models import rimless_wheel, simplest_walker

# Reference: Taylor-series integration in 75 and 90 digits, events by Newton's method; closed forms for the wheel.
WHEEL = {
    "theta": ("-0.5235987755982", "-0.5235987755982988730771"),
    "theta_rate": ("0.460341126609458", "0.4603411266094582782492"),
    "multiplier 1": ("0.444444444444440", "0.4444444444444444444444"),
    "multiplier 2": ("0", "0"),
}
LONG = {
    "theta": ("0.200310900544287", "0.2003109005442470893602"),
    "theta_rate": ("-0.199832473004977", "-0.1998324730049523545376"),
    "phi": ("0.400621801088574", "0.4006218010884941787203"),
    "phi_rate": ("-0.015822999948318", "-0.0158229999483093821899"),
    "multiplier 1, real": ("-0.190099841069399", "-0.1900998410658881460666"),
    "multiplier 1, imag": ("0.557598776679489", "0.5575987766820682687652"),
}
SHORT = {
    "theta": ("0.193937369810184", "0.1939373698101818085312"),
    "theta_rate": ("-0.203866927442010", "-0.2038669274420069268031"),
    "phi": ("0.387874739620369", "0.3878747396203636170625"),
    "phi_rate": ("-0.015144260853192", "-0.0151442608531915680822"),
    "multiplier 1": ("4.003864358929642", "4.0038643589297071787532"),
    "multiplier 2": ("0.459589589797698", "0.4595895897976715875060"),
}
REMARKS = """\
Errata of the paper:
- Eqs. (6) and (16) print their factors in the wrong order: the Jacobian of the return map is g_x (I - f h_x/(h_x f)) F.
  The eigenvalues of the printed product are the same, the matrix is not.
- The slope is gamma in eq. (18) and alpha in eqs. (19)-(20).
- Sec. 4.2: the start's fourth entry is (1 - cos 2 theta) theta', not (1 - cos theta) theta'.
- Table 1: the fixed points are right to 13 digits; the stable gait's eigenvalues to 11 decimals, not the 12 claimed."""


def bhounsule() -> None:
    """Print the numbers of Bhounsule (2014): the rimless wheel of Sec. 3, and both columns of Table 1."""
    console = Console(width=132)
    wheel = _orbits(rimless_wheel, rimless_wheel.Params())[0]
    console.print(_table("Rimless wheel, n = 6, lambda^2 = 2/3, slope 0.2 (Sec. 3)", WHEEL, _numbers(wheel)))
    walks = _orbits(simplest_walker, simplest_walker.Params())
    console.print(_table("Simplest walker, slope 0.009: stable gait (Table 1)", LONG, _numbers(walks[0])))
    console.print(_table("Simplest walker, slope 0.009: unstable gait (Table 1)", SHORT, _numbers(walks[1])))
    console.print(REMARKS, highlight=False, markup=False)


def _orbits(model, params) -> hj.PeriodicOrbit:
    orbits = hj.find_orbits(model.step, params, region=model.region(params))
    return jax.device_get(orbits)


def _numbers(orbit: hj.PeriodicOrbit) -> dict[str, float]:
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    numbers = {name: float(value) for name, value in zip(names, orbit.x, strict=True)}
    for k, value in enumerate(np.asarray(orbit.multipliers), 1):
        numbers[f"multiplier {k}"] = float(value.real)
        numbers[f"multiplier {k}, real"] = float(value.real)
        numbers[f"multiplier {k}, imag"] = float(value.imag)
    return numbers


def _table(title: str, printed: dict[str, tuple[str, str]], ours: dict[str, float]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in ("paper", "hyjax", "reference", "paper - reference", "hyjax - reference"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, (paper, reference) in printed.items():
        exact = float(reference)
        errors = (f"{value - exact:+.1e}" for value in (float(paper), ours[name]))
        table.add_row(name, paper, f"{ours[name] + 0.0:+.16f}", reference[:21], *errors)
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser, arguments)
    bhounsule()


if __name__ == "__main__":
    main()
