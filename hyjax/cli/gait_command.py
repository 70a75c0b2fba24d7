"""The command `gait`: the periodic orbits of a model in a region, without an initial guess."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from .arguments import (
    as_misuse,
    check_count,
    in_degrees,
    LEVEL,
    load,
    Misuse,
    parse_parameters,
    parse_region,
    parse_sequence,
    parse_start,
    refuse_search,
)  # fmt: skip
from .options import Animate, Json, Model, MOST_POINTS, MOST_STRIDES, Overwrite, Param, Sequence, Strides
from .orbits import choose_orbit, described_region, MOST_STARTS, orbit_of_family, require_orbits, tell_search
from .output import check_files, check_outline, orbits_record, save_figure, tell_written
from .process import start_jax
from .robot_file import load_robot, robot_and_contacts

# The default of `--starts` around a state that is given.
NEAR_STARTS = 16


def gait(
    name: Model,
    param: Param = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    contact: Annotated[
        list[str] | None,
        typer.Option(help="of a robot's file: a geom or site that touches its plane; twice for two feet"),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            help="of a robot's file: left=right, joints whose links change places at a strike; none for legs that differ; "
            "default: those whose names say so"
        ),
    ] = None,
    start: Annotated[
        list[str] | None,
        typer.Option(help="of a robot's file: coordinate=value, of a state near a gait; the others are those at rest"),
    ] = None,
    starts: Annotated[
        int | None,
        typer.Option(
            help="largest number of initial guesses; fewer where new ones find nothing new; default: 2048, and 16 with --start"
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="box of states at the start of the sequence, as 0:1,-2:2,0; default: the model's")
    ] = None,
    orbit: Annotated[
        int | None,
        typer.Option(
            help="number of the orbit to draw, from 1; default: all in --plot, the first stable one in --animate"
        ),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="draw phase portrait, coordinates over time and multipliers to this file")
    ] = None,
    animate: Animate = None,
    overwrite: Overwrite = False,
):
    """Find the periodic orbits of a model in a region, without an initial guess. Print states, periods and multipliers.

    Of a robot's MJCF or URDF file with two feet the steps are those of a walker: one foot stands, the other strikes, and the legs
    change places.

    Of a model whose orbits are a family, such as biped_slip, it is the orbit near the model's guess, at the guess's energy or
    that of --param conserved=VALUE.

    The search goes on until the expected share of guesses that lead to other orbits is 1/4000; orbits to which fewer lead may be
    missed.
    """
    check_count("--strides", strides, 1, MOST_STRIDES)
    searched_by = {"--sequence": sequence, "--region": region, "--starts": starts}
    starts = (NEAR_STARTS if start else MOST_STARTS) if starts is None else starts
    check_count("--starts", starts, 1, MOST_POINTS)
    if orbit is not None:
        check_count("--orbit", orbit, 1, MOST_POINTS)
    check_files(plot, animate, overwrite=overwrite)
    cache, state = start_jax(), None
    if not robot_and_contacts(name):
        if contact or mirror or start:
            raise Misuse(
                f"--contact, --mirror and --start are for a robot's file, such as robot.xml, and {name} is none."
            )
        model = load(name, sequence)
    else:
        with as_misuse():
            model = load_robot(name, contact or (), mirror or (), sequence)
        if start and region is not None:
            raise Misuse("--start and --region: give one of them; the search is around a state, or over a region.")
        if start:
            # The region is then that around the state.
            state = parse_start(model, start)
            vars(model.module).update(guess=state, start=lambda params: (model.system.names[0], state))
            del vars(model.module)["region"]
    check_outline(model, animate)
    params, values = parse_parameters(model, param, levels=True)
    if hasattr(model, "conserved"):
        refuse_search(model, searched_by)
        orbits, about, note = orbit_of_family(model, params, strides), {LEVEL: values[LEVEL]}, "of a family"
    else:
        modes = parse_sequence(model, sequence)
        names = model.system.mode(modes[0]).coordinates
        within = None if region is None else parse_region(region, names)
        if robot_and_contacts(name):
            tell_search(model, params, modes, state, starts)
        option = "--region" if state is None else "--start"
        orbits, searched = require_orbits(model, params, values, modes, strides, cache, starts, within, option)
        about = {"region": [list(map(float, bound)) for bound in searched]}
        note = f"searched: {described_region(searched, names)}"

    import jax
    import numpy as np

    shown = jax.device_get(orbits)
    if as_json:
        print(json.dumps(orbits_record(name, model, values, shown) | about))
    else:
        from .._orbit.orbit_report import side_by_side

        setting = ", ".join(f"{key} = {value:.10g}" for key, value in values.items())
        width = max(100, shutil.get_terminal_size().columns)
        table = side_by_side(shown, f"{model.title}: {setting}", width)
        print(table._replace(notes=[note]).text(units=True))
    drawn = orbits if orbit is None else choose_orbit(orbits, orbit, values)
    if plot is not None:
        from ..plot.orbit_figure import orbit_figure

        save_figure(plot, lambda: orbit_figure(drawn, model, in_degrees(param)))
    if animate is not None:
        from ..plot.animation import animate_orbit, save_animation

        with as_misuse():
            chosen = orbit or 1 + int(np.argmax(shown.stable))
            label = f"gait {chosen} of {len(orbits)}" if len(orbits) > 1 else ""
            save_animation(animate_orbit(orbits[chosen - 1], model, label=label), animate)
        tell_written(animate)
