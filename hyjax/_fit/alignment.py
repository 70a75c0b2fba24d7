"""Which recorded events are none of the model, before which an event of the model was not recorded, and which change places.

Each recorded event is followed from the one before it that is kept, with its recorded time: the model's next events, and those
after them, are compared with the next recorded ones. The cheapest chain from the first row to the last wins, by a search that
keeps a few chains at every row. An interval costs its relative error, and an event that has no partner `PENALTY`: so the
parameters need not be near.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.eager import short_run
from .._system.results import RESULTS
from .least_squares import FitProblem
from .links import Node
from .recording import Matching, Recording

# The events that may be left out between two that match, and their cost; chains kept at a row.
MOST, PENALTY, KEPT = 3, 0.3, 4


def match(problem: FitProblem, record: Recording, k: int, theta: Float[Array, " n"], labels: list) -> Matching:
    """The matching of record `k` at the unknowns. **Arguments:** `labels`: of the kinds."""
    rows = [row for row, label in enumerate(record.labels) if label is not None]
    times, kinds = np.asarray(record.values[:, 0]), [labels.index(record.labels[row]) for row in rows]
    params = problem.params_of_record(theta, k)
    # Of rows at one instant the interval is that before them all.
    joined, starts = (np.asarray(each)[k] for each in (problem.links.joined, problem.links.start))
    starts = starts[np.maximum.accumulate(np.where(joined, 0, np.arange(len(joined))))]

    def off(t, i: int, since) -> float:
        recorded, since = times[rows[i]], min(since, starts[i])
        return float(abs(t - recorded) / max(t - since, recorded - since, np.finfo(float).tiny))

    first = problem.first_node(problem.start.numbers[k], problem.start.times[k], params)
    # By the last row: the chains to it, each a cost, the node there, and the matching.
    known: dict[int, list[tuple[float, Node, Matching]]] = {
        -1: [(0.0, jax.tree.map(np.asarray, first), Matching({}, ()))]
    }
    ends: list[tuple[float, Matching, int]] = []
    for i in range(-1, len(rows) - 1):
        chains = sorted(known.pop(i, []), key=lambda chain: chain[0])[:KEPT]
        # All that follows may be no event of the model.
        ends += [(cost + PENALTY * (len(rows) - 1 - i), matching, i) for cost, _, matching in chains]
        ahead = range(i + 1, min(i + 1 + MOST, len(rows)))
        if not chains:
            continue
        lanes = [(chain, j) for chain in chains for j in ahead]
        padded = (lanes * (KEPT * MOST))[: KEPT * MOST]
        nodes = jax.tree.map(
            lambda *parts: jnp.stack(list(map(jnp.asarray, parts))), *(node for (_, node, _), _ in padded)
        )
        found, good = _following(problem, params, nodes, jnp.array([kinds[j] for _, j in padded]))
        reached, good = jax.tree.map(np.asarray, found), np.asarray(good)
        for lane, ((known_cost, last, before), j) in enumerate(lanes):
            for m in range(MOST):
                if not good[m, lane]:
                    break
                node = jax.tree.map(lambda leaf, m=m, lane=lane: leaf[m, lane], reached)
                skips, spurious, turned = before
                skips = skips | ({rows[j]: m} if m else {})
                matching = Matching(skips, (*spurious, *rows[i + 1 : j]), turned)
                cost = known_cost + off(node.t, j, last.t) + PENALTY * (m + j - i - 1)
                after = eqx.tree_at(lambda each: each.t, node, times[rows[j]])
                known.setdefault(j, []).append((cost, after, matching))
            # Two events in the other order.
            other, beside = lane - 1, j > i + 1 and rows[j] == rows[j - 1] + 1 and kinds[j] != kinds[j - 1]
            if beside and good[0, other] and good[0, lane] and reached.t[0, lane] <= reached.t[0, other]:
                parts = zip((other, lane), (j - 1, j), strict=True)
                cost = known_cost + sum(off(reached.t[0, each], row, last.t) for each, row in parts)
                node = jax.tree.map(lambda leaf, k=other: leaf[0, k], reached)
                after = eqx.tree_at(lambda each: each.t, node, times[rows[j]])
                skips, spurious, turned = before
                matching = Matching(skips, (*spurious, *rows[i + 1 : j - 1]), (*turned, rows[j]))
                known.setdefault(j, []).append((cost + PENALTY * (j - i - 2), after, matching))
    ends += [(cost, matching, len(rows) - 1) for cost, _, matching in known.get(len(rows) - 1, [])]
    _, matching, j = min(ends, key=lambda end: end[0])
    return matching._replace(spurious=(*matching.spurious, *rows[j + 1 :]))


@short_run
def _following(problem: FitProblem, params, nodes: Node, kinds: Array):
    """The next events of their kinds after each node, one after the other, and whether there are."""
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0, 0]), problem.links)
    none = lambda link: (link.times, link.sample_values, link.sample_weights, link.sample_rows)
    blank = eqx.tree_at(none, blank, [each[:0] for each in none(blank)])

    def one(node, kind):
        link = eqx.tree_at(lambda each: each.kind, blank, kind)

        def follow(carry, _):
            node, good = carry
            reached = problem.link(node, link, params)
            good = good & (reached.result == RESULTS.successful)
            return (reached.node, good), (reached.node, good)

        return jax.lax.scan(follow, (node, jnp.array(True)), None, length=MOST)[1]

    return jax.vmap(one, out_axes=1)(nodes, kinds)
