"""The least squares of an iteration of a fit: free states eliminated link by link, against all unknowns at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

from hyjax._testing import (
    bent_change,
    Free,
    ResidualRows,
    sizes_of,
    with_free_states,
    within_bounds,
    without_free_states,
)

RECORDS, NODES, START, SIZE, N = 2, 4, 1, 3, 2
WEIGHT = 50.0


def made(closed: bool):
    """Random rows of two records, each of five links with two residuals."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape)
    own, columns = START + SIZE, START + SIZE + N + 1
    links, gaps = draw(RECORDS, NODES + 1, 2, columns), draw(RECORDS, NODES, SIZE, columns)
    closing = draw(RECORDS, START, columns) if closed else draw(RECORDS, 0, columns)
    # The first link begins at the start, the others at a free state.
    for rows in (links, gaps):
        rows[:, 0, :, START:own], rows[:, 1:, :, :START] = 0, 0
    closing[..., START:own] = 0
    return ResidualRows(*map(jnp.asarray, (links, gaps, closing, draw(1, N + 1)))), draw(
        RECORDS * (NODES * SIZE + closing.shape[1])
    )


def dense(rows, dual):
    """The same rows in all unknowns, parameters, starts and free states, with their values; the gaps weighted."""
    every, first, free = [], N, N + RECORDS * START
    blank = np.zeros(free + RECORDS * NODES * SIZE + 1)
    for record, duals in enumerate(dual.reshape(RECORDS, -1)):
        more = iter(duals)
        places = [slice(first + record * START, first + (record + 1) * START)]
        places += [
            slice(free + (record * NODES + k) * SIZE, free + (record * NODES + k + 1) * SIZE) for k in range(NODES)
        ]
        for kind, each in (("link", rows.links), ("gap", rows.gaps), ("closing", rows.closing[:, None])):
            for k in range(NODES + 1):
                for i in range(each.shape[2] if k < each.shape[1] else 0):
                    row, given = blank.copy(), np.asarray(each[record, k, i])
                    row[:N], row[-1] = given[-1 - N : -1], given[-1]
                    row[places[k]] = given[START : START + SIZE] if k else given[:START]
                    if kind == "gap":
                        row[places[k + 1].start + i] -= 1
                    if kind != "link":
                        row *= WEIGHT
                        row[-1] += next(more) / WEIGHT
                    every.append(row)
    for given in np.asarray(rows.others):
        row = blank.copy()
        row[:N], row[-1] = given[:-1], given[-1]
        every.append(row)
    matrix = np.array(every)
    return matrix[:, :-1], matrix[:, -1]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_elimination_of_free_states(closed, damping):
    rows, dual = made(closed)
    weighted = rows.weighted(jnp.array(WEIGHT), jnp.asarray(dual))
    matrix, values = dense(rows, dual)
    sizes = sizes_of(weighted, jnp.array(WEIGHT))
    flat = np.concatenate([np.ravel(each) for each in sizes])
    assert_allclose(flat, np.linalg.norm(matrix, axis=0), rtol=1e-13)
    all_at_once = np.linalg.lstsq(
        np.vstack([matrix, damping * np.diag(flat)]), -np.append(values, np.zeros(flat.size)), rcond=None
    )[0]
    left = without_free_states(weighted, jnp.array(WEIGHT), damping * sizes.nodes)
    a = np.vstack([left.matrix, left.closing, damping * np.diag(sizes.first)])
    b = np.concatenate([left.values, left.gaps, np.zeros(sizes.first.size)])
    first = np.linalg.lstsq(a, -b, rcond=None)[0]
    change = with_free_states(weighted, left, jnp.asarray(first))
    # The condition of the matrix is below a thousand.
    assert_allclose(np.concatenate([np.ravel(each) for each in change]), all_at_once, rtol=1e-11, atol=1e-12)
    # What is left of the sum of squares is the same, as the rows are transformed and not squared.
    least = np.sum((a @ first + b) ** 2)
    whole = np.sum((matrix @ all_at_once + values) ** 2) + np.sum((damping * flat * all_at_once) ** 2)
    assert_allclose(least, whole, rtol=1e-11)


@pytest.mark.parametrize("closed", [False, True])
def test_the_bend_of_a_step(closed):
    """Dense matrices for the step along the tangent and for its correction; a correction that is no small part is left out."""
    rows, dual = made(closed)
    rng, damping, weight = np.random.default_rng(2), 0.3, jnp.array(WEIGHT)
    count, none = N + RECORDS * START, (jnp.zeros((0, N + RECORDS * START)), jnp.zeros(0))
    matrix, values = dense(rows, dual)
    sizes = np.linalg.norm(matrix, axis=0)
    whole = np.vstack([matrix, np.sqrt(damping) * np.diag(sizes)])
    solved = lambda values: np.linalg.lstsq(whole, -np.append(values, np.zeros(sizes.size)), rcond=None)[0]
    last, straight = rng.standard_normal(sizes.size) / sizes, solved(values)
    part = (straight * sizes) @ (last * sizes) / np.sum((last * sizes) ** 2)
    for size, bends in ((0.02, True), (20.0, False)):
        turned = jax.tree.map(lambda row, size=size: jnp.where(row != 0, size * row[..., ::-1], 0), rows)
        change = dense(ResidualRows(*map(jnp.add, rows, turned)), dual)[0] - matrix
        curved = solved(values + part / 2 * change @ (2 * straight - part * last))
        assert bends == (np.linalg.norm(sizes * (curved - straight)) < 0.375 * np.linalg.norm(sizes * straight))
        way = Free(last[:N], last[N:count].reshape(RECORDS, START), last[count:].reshape(RECORDS, NODES, SIZE))
        found, fall, _ = bent_change(rows, weight, jnp.asarray(dual), jnp.array(damping), none, None, (way, turned))
        expected = curved if bends else straight
        assert_allclose(np.concatenate([np.ravel(each) for each in found]), expected, rtol=1e-10, atol=1e-11)
        left = np.sum((matrix @ straight + values) ** 2) + damping * np.sum((sizes * straight) ** 2)
        assert_allclose(fall, values @ values - left + damping * np.sum((sizes * straight) ** 2), rtol=1e-10)


def test_least_squares_within_bounds():
    """Steps repeated until none is left, with columns that nearly agree, against the method of Stark and Parker (SciPy's BVLS);
    each lowers the sum of squares."""
    rng, step, most = np.random.default_rng(0), jax.jit(within_bounds), 0
    for case in range(30):
        matrix, offset = rng.standard_normal((10, 5)), rng.standard_normal(10)
        if case % 3 == 0:
            matrix[:, 0] = matrix[:, 4] + 1e-3 * matrix[:, 0]
        low, high = -rng.uniform(0, 0.5, 5), rng.uniform(0, 0.5, 5)
        q, upper = np.linalg.qr(matrix)
        x, steps = np.zeros(5), 0
        while steps < 10:
            change = np.asarray(step(upper, q.T @ (matrix @ x + offset), low - x, high - x))
            after = np.where(change == low - x, low, np.where(change == high - x, high, x + change))
            before, square = (np.sum((matrix @ each + offset) ** 2) for each in (x, after))
            assert np.all((after >= low) & (after <= high)) and square <= before + 1e-14
            if np.max(np.abs(after - x)) < 1e-12:
                break
            x, steps = after, steps + 1
        most = max(most, steps)
        expected = scipy.optimize.lsq_linear(matrix, -offset, (low, high), method="bvls", tol=1e-15)
        assert_allclose(x, expected.x, atol=1e-12 * np.linalg.cond(matrix))
    # Some need a bound that is left again.
    assert 1 < most < 10
