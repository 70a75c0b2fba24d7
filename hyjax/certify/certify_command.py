"""The command `certify`: a proof that a model's limit cycle attracts, under disturbances."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from ..cli.arguments import as_misuse, check_count, load, Misuse, NotFound, parse_parameters, parse_sequence
from ..cli.options import Json, Model, Overwrite, Param, Sequence
from ..cli.orbits import require_orbits
from ..cli.output import check_files, nested_lists, save_figure
from ..cli.process import start_jax
from ..cli.robot_file import robot_and_contacts


def certify(
    name: Model,
    param: Param = None,
    sequence: Sequence = None,
    disturbance: Annotated[float, typer.Option(help="bound of the disturbance of the rates; 0: none")] = 0.0,
    norm: Annotated[str, typer.Option(help="norm of the disturbance: 2, or inf for each rate by itself")] = "2",
    channel: Annotated[
        list[str] | None, typer.Option(help="coordinate whose rate is disturbed; repeat; default: all")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="size of the set, in the certificate's coordinates; default: found")
    ] = None,
    facets: Annotated[int, typer.Option(help="edges of the polygon")] = 32,
    rings: Annotated[int, typer.Option(help="rings of pieces into which the polygon is cut")] = 3,
    sectors: Annotated[int | None, typer.Option(help="pieces of the outermost ring; default: 6 * 2^rings")] = None,
    steps: Annotated[int, typer.Option(help="steps of each arc")] = 32,
    orders: Annotated[int, typer.Option(help="orders of the Taylor series in time")] = 12,
    degree: Annotated[int, typer.Option(help="degree of the polynomials of the initial state")] = 2,
    basin: Annotated[
        int | None,
        typer.Option(
            help="also prove the basin around the set: cells along each side of a square, four times the set's size"
        ),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="draw the set, the bound of its image and the tube to this file; with --basin, the cells"),
    ] = None,
    overwrite: Overwrite = False,
):
    """Prove that the stable limit cycle of a model attracts: a set on a section is mapped into its interior.

    Exit status 0 if it is proved, 1 if not, which does not mean that it is false: more pieces, facets or steps may prove it.
    """
    for option, value, least, most in (
        ("--facets", facets, 8, 10_000),
        ("--rings", rings, 1, 12),  # each further ring doubles the number of pieces
        ("--sectors", 3 if sectors is None else sectors, 3, 10_000),
        ("--steps", steps, 1, 10_000),
        ("--orders", orders, 2, 10_000),
    ):
        check_count(option, value, least, most)
    if radius is not None and not 0 < radius < math.inf:
        raise Misuse(f"--radius: {radius:g} must be positive and finite; without it, a size is found.")
    check_count("--degree", degree, 2, 6)
    if basin is not None:
        check_count("--basin", basin, 4, 1000)
    check_files(plot, overwrite=overwrite)
    if robot_and_contacts(name):
        raise Misuse(
            f"certify: {name} is a robot's file, of which no proof is made: give a model, or the robot's equations as a file."
        )
    cache = start_jax()
    model = load(name)
    params, values = parse_parameters(model, param)
    modes = parse_sequence(model, sequence)
    from .attracting import attracting
    from .disturbance import Disturbance
    from .proved_basin import proved_basin

    coordinates = {each for mode in modes for each in model.system.mode(mode).coordinates}
    with as_misuse():
        if channel is not None and not set(channel) <= coordinates:
            raise ValueError(f"--channel {' '.join(sorted(set(channel) - coordinates))}: one of {sorted(coordinates)}.")
        disturbed = Disturbance(disturbance, norm, None if channel is None else tuple(channel))
    orbits, _ = require_orbits(model, params, values, modes, 1, cache)
    stable = [orbits[i] for i in range(len(orbits)) if bool(orbits[i].stable)]
    if not stable:
        raise NotFound(f"{name} has no stable orbit at these parameters: nothing attracts.")
    with as_misuse():
        proof = attracting(
            stable[0], disturbance=disturbed, radius=radius, facets=facets, rings=rings, sectors=sectors, steps=steps,
            orders=orders, degree=degree,
        )  # fmt: skip
    around = None
    if basin is not None and proof.proved:
        around = proved_basin(proof, cells=basin, steps=steps, orders=orders, degree=degree)
    if as_json:
        record = certificate_record(name, values, proof)
        print(json.dumps(record if around is None else record | {"basin": proved_basin_record(around)}))
    elif proof.proved:
        print(*(each for each in (proof, around) if each is not None), sep="\n")
    save_figure(plot, lambda: proof.plot(model) if around is None else around.plot().figure)
    if not proof.proved:
        raise NotFound(f"not proved: {'; '.join(proof.reasons)}. Try more --rings, --facets or --steps.")


def certificate_record(name: str, values: dict[str, float], proof) -> dict:
    """The JSON record of a certificate; a number that is not finite becomes null."""
    disturbance, modes, orbit = proof.disturbance, proof.orbit.system.modes, proof.orbit
    tubes = [
        {
            "mode": mode,
            "coordinates": list(modes[mode].coordinates),
            "low": nested_lists(tube.low),
            "high": nested_lists(tube.high),
            "start_low": nested_lists(tube.start_low),
            "start_high": nested_lists(tube.start_high),
            "elapsed": nested_lists(tube.elapsed),
            "last": nested_lists(tube.last),
        }
        for mode, tube in zip(orbit.sequence * orbit.strides, proof.tubes, strict=True)
    ]
    return {
        "model": name,
        "params": values,
        "status": proof.status,
        "converges": bool(proof.converges),
        "reasons": list(proof.reasons),
        "ratio": nested_lists(proof.ratio),
        "disturbance": {"bound": disturbance.bound, "norm": disturbance.norm, "channels": disturbance.channels},
        "coordinates": list(proof.coordinates),
        "center": nested_lists(proof.center),
        "half_widths": nested_lists(proof.half_widths),
        "vertices": nested_lists(proof.vertices),
        "image": nested_lists(proof.image_vertices),
        "axes": nested_lists(proof.axes),
        "tubes": tubes,
        "norm": nested_lists(proof.norm),
        "pieces": proof.pieces,
        "sets": proof.sets,
        "seconds": proof.seconds,
        "compile_seconds": proof.compile_seconds,
        "assumptions": list(proof.assumptions),
    }


def proved_basin_record(basin) -> dict:
    """The JSON record of a proved basin, but for its cells."""
    return {
        "cells": len(basin.cells),
        "area": basin.area,
        "most_strides": max(basin.strides.tolist(), default=0),
        "evaluated": basin.evaluated,
        "seconds": basin.seconds,
    }
