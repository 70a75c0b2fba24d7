"""How far does a proof of the simplest walker's limit cycle reach, in how many pieces and seconds?

First, regular polygons of size eps in the coordinates of the certificate: the ratio of the image to the set under disturbances of
all rates up to w, Euclidean norm; a ratio below 1 proves that the set is mapped inside. Second, sets that `attracting` finds, for
larger disturbances, other norms and channels. Third, cells of the basin of attraction. Seconds are of the proofs; programs were
compiled before.

    python benchmarks/certificates.py [--quick]
"""

import argparse
import importlib
import time

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import hyjax as hj
from hyjax.certify.enclosed_map import EnclosedMap
from hyjax.certify.polygon import from_supports, PieceImages
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)
FACETS = 32
# (eps, w, rings, degree)
FIXED = [
    (6e-4, 0.0, 1, 2), (4e-3, 0.0, 1, 2), (8e-3, 0.0, 3, 2), (1.2e-2, 0.0, 4, 2), (1.3e-2, 0.0, 4, 2), (1.4e-2, 0.0, 5, 2),
    (5e-4, 1e-6, 2, 2), (4e-3, 1e-5, 4, 2), (4e-3, 2e-5, 4, 2), (6e-3, 4e-5, 5, 2), (6.5e-3, 5e-5, 5, 2),
]  # fmt: skip
ACCELERATIONS = ("theta_rate", "phi_rate")
# (w, norm, channels)
FOUND = [
    (8e-5, "2", None), (1e-4, "2", None), (1.3e-4, "2", None), (1.5e-4, "2", None), (1e-4, "2", ACCELERATIONS),
    (2e-4, "2", ACCELERATIONS), (5e-5, "inf", None), (8e-5, "inf", None), (1e-4, "inf", ACCELERATIONS),
    (1.5e-4, "inf", ACCELERATIONS),
]  # fmt: skip


def fixed(orbit, size, bound, rings, degree):
    directions = importlib.import_module("hyjax.certify.attracting")._around(FACETS)
    of = EnclosedMap(orbit, hj.certify.Disturbance(bound), steps=32, orders=12)
    images, polygon = PieceImages(of, rings, 6 * 2**rings, degree), from_supports(directions, np.full(FACETS, size))
    images.boundary(from_supports(directions, np.full(FACETS, 1e-6)), directions)
    begun = time.perf_counter()
    reached = images.all(polygon, directions)
    return len(reached.far), reached.ratio, time.perf_counter() - begun, not reached.reasons


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="the first rows")
    quick = parser.parse_args().quick
    orbit = hj.periodic_orbit(walker.step, walker.guess(walker.Params()), walker.Params())
    console = Console(width=110)
    table = Table("eps", "w", "pieces", "ratio", "seconds", "status")
    for size, bound, rings, degree in FIXED[: 2 if quick else None]:
        pieces, ratio, seconds, proved = fixed(orbit, size, bound, rings, degree)
        status = "proved" if proved else "not proved"
        table.add_row(f"{size:g}", f"{bound:g}", f"{pieces}", f"{ratio:.3f}", f"{seconds:.1f}", status)
    console.print(table)
    table = Table("w", "norm", "rates", "half-widths", "pieces", "sets", "seconds", "compiled", "status")
    for bound, norm, channels in FOUND[: 1 if quick else None]:
        proof = hj.certify.attracting(
            orbit, disturbance=hj.certify.Disturbance(bound, norm, channels), max_iterations=40
        )
        spans = 0.5 * (proof.vertices.max(axis=0) - proof.vertices.min(axis=0))
        table.add_row(
            f"{bound:g}", norm, "all" if channels is None else "accelerations", ", ".join(f"{s:.2g}" for s in spans),
            f"{proof.pieces}", f"{proof.sets}", f"{proof.seconds:.1f}", f"{proof.compile_seconds:.0f}", proof.status,
        )  # fmt: skip
    console.print(table)
    if not quick:
        print(hj.certify.proved_basin(hj.certify.attracting(orbit, radius=8e-3), extent=0.1, cells=64, levels=1))
