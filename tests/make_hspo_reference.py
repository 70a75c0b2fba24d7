"""Special points of the models `bangbang` and `impact_microactuator`, to 20 digits, by another route than the package's.

Taylor series of the fields by recurrences, 40 terms in 40 digits; an arc's end in time is known in closed form (the phase or
clock grows linearly), so that only impacts are searched for. Shooting equations with the condition on the Jacobian, whose
columns and derivatives are central differences of step 1e-12 (error 1e-24), are solved by Newton's method.

    python tests/make_hspo_reference.py > tests/hspo_reference.json
"""

import json

from mpmath import mp, mpf

mp.dps = 40
TERMS = 36


def product(a, b, n):
    return mp.fdot(a[: n + 1], b[n::-1])


def duffing(x, v, force, duration, p):
    """x'' = force - damping x' - stiffness x - cubic x^3 for a time."""
    damping, stiffness, cubic = p
    steps = int(duration / mpf("0.07")) + 1
    h = duration / steps
    for _ in range(steps):
        xs, vs, squares = [x], [v], []
        for n in range(TERMS):
            squares.append(product(xs, xs, n))
            cube = product(squares, xs, n)
            accel = -damping * vs[n] - stiffness * xs[n] - cubic * cube + (force if n == 0 else 0)
            xs.append(vs[n] / (n + 1))
            vs.append(accel / (n + 1))
        x, v = mp.polyval(xs[::-1], h), mp.polyval(vs[::-1], h)
    return x, v


def jacobian(f, x, h=mpf(10) ** -12):
    columns = []
    for k in range(len(x)):
        up, down = list(x), list(x)
        up[k] += h
        down[k] -= h
        columns.append([(a - b) / (2 * h) for a, b in zip(f(up), f(down), strict=True)])
    return mp.matrix(columns).T


def newton(f, x, tolerance=mpf(10) ** -22):
    for _ in range(12):
        step = mp.lu_solve(jacobian(f, x), mp.matrix(f(x)))
        x = [a - b for a, b in zip(x, step, strict=True)]
        if max(abs(b) for b in step) < tolerance * max(1, *(abs(a) for a in x)):
            return x
    raise RuntimeError(f"no convergence: {step}")


DUFFING = mpf("0.2"), mpf(1), mpf(1)


def half(x, frequency, force):
    return duffing(x[0], x[1], force, mp.pi / frequency, DUFFING)


def symmetric(unknowns):
    """Q, the half period followed by -1."""
    x, v = half(unknowns[:2], unknowns[2], mpf(-26))
    return [-x, -v]


def whole(unknowns):
    x = half(unknowns[:2], unknowns[2], mpf(-26))
    return list(half(x, unknowns[2], mpf(26)))


def twice(unknowns):
    return whole([*whole(unknowns), unknowns[2]])


def special(around, shift):
    """The map returns, and its Jacobian has the eigenvalue `shift`."""

    def equations(u):
        end = around(u)
        slope = jacobian(lambda x: around([*x, u[2]]), u[:2])
        return [end[0] - u[0], end[1] - u[1], mp.det(slope - shift * mp.eye(2))]

    return equations


# The half period's multiplier is +1 at a fold of symmetric orbits, -1 where they lose their symmetry.
BANGBANG = {
    "fold, low": (symmetric, 1, (1.498961515, 11.65355661, 0.8194877656)),
    "fold, high": (symmetric, 1, (6.497028574, 0.8932003383, 1.110970752297)),
    "symmetry-breaking 1": (symmetric, -1, (0.9589957802, 7.981926542, 0.8543992737)),
    "symmetry-breaking 2": (symmetric, -1, (0.5435146341, 0.06558799728, 1.0759679066)),
    "period-doubling 1": (whole, -1, (1.897471231, 8.390382515, 0.8693079238)),
    "period-doubling 2": (whole, -1, (3.402909606, 2.50776024, 0.9913124867)),
    "fold 1": (whole, 1, (3.496388727, 4.744465874, 1.0640916304)),
    "fold 2": (whole, 1, (1.448559707, 7.821455181, 1.0158631981)),
    "second doubling 1": (twice, -1, (2.155356665, 8.629248549, 0.8725681384)),
    "second doubling 2": (twice, -1, (3.789560618, 2.85560755, 0.9788823422)),
}


def actuator(state, slipping, duration, p):
    """Frame speed, displacement, its rate and the phase, after a time in one mode."""
    voltage, damping, friction, frequency, ratio = p
    s, q, v, phase = state
    steps = int(duration / mpf("0.08")) + 1
    h = duration / steps
    for _ in range(steps):
        ss, qs, vs, gaps, squares, inverse = [s], [q], [v], [], [], []
        sine, cosine = mp.sin(2 * phase), mp.cos(2 * phase)
        for n in range(TERMS):
            gaps.append((1 if n == 0 else 0) - qs[n])
            squares.append(product(gaps, gaps, n))
            # sin^2 = (1 - cos 2 phase)/2, and its series.
            turn = (cosine, -sine, -cosine, sine)[n % 4] * (2 * frequency) ** n / mp.factorial(n)
            lift = ((1 if n == 0 else 0) - turn) / 2
            known = mp.fdot(squares[1 : n + 1], inverse[n - 1 :: -1]) if n else 0
            inverse.append((lift - known) / squares[0])
            force = voltage**2 * inverse[n] - damping * vs[n] - qs[n]
            rate = -(friction if n == 0 else 0) - force / ratio if slipping else mpf(0)
            ss.append(rate / (n + 1))
            qs.append(vs[n] / (n + 1))
            vs.append((force - rate) / (n + 1))
        s, q, v = (mp.polyval(each[::-1], h) for each in (ss, qs, vs))
        phase += frequency * h
    return s, q, v, phase


def parameters(voltage):
    return voltage, mpf("0.04"), mpf("3.17"), mpf("0.92"), mpf(5)


def sticking_period(unknowns):
    """From a maximum of the displacement, half a turn of the phase later."""
    q, v, phase, voltage = unknowns
    _, q, v, _ = actuator((mpf(0), q, v, phase), False, mp.pi / mpf("0.92"), parameters(voltage))
    return q, v


def grazing(unknowns):
    phase, voltage = unknowns
    q, v = sticking_period((mpf("0.5"), mpf(0), phase, voltage))
    return [q - mpf("0.5"), v]


def sticking_fold(unknowns):
    q, phase, voltage = unknowns
    end = sticking_period((q, mpf(0), phase, voltage))
    # At fixed phase: a stroboscopic map.
    slope = jacobian(lambda x: sticking_period((*x, phase, voltage)), [q, mpf(0)])
    return [end[0] - q, end[1], mp.det(slope - mp.eye(2))]


def impacting(unknowns):
    """Sticks to the wall, strikes, slips to rest, and is where it was: the state after slip, and both durations."""
    q, v, phase, sticks, slips = unknowns
    p = parameters(mpf("0.65"))
    _, q1, v1, phase1 = actuator((mpf(0), q, v, phase), False, sticks, p)
    struck = (mpf("1.8") / 6 * v1, q1, -mpf("0.8") * v1, phase1)
    s2, q2, v2, phase2 = actuator(struck, True, slips, p)
    return [q1 - mpf("0.5"), s2, q2 - q, v2 - v, phase2 - mp.pi - phase]


def digits(values):
    return [mp.nstr(value, 20) for value in values]


if __name__ == "__main__":
    import sys

    found = {"bangbang": {}, "impact_microactuator": {}}
    for name, (around, shift, guess) in BANGBANG.items():
        x, v, frequency = newton(special(around, shift), [mpf(each) for each in guess])
        found["bangbang"][name] = digits((frequency, x, v))
        print(name, *found["bangbang"][name], file=sys.stderr)
    phase, voltage = newton(grazing, [mpf("-0.00954"), mpf("0.58751625")])
    found["impact_microactuator"]["grazing"] = digits((voltage, phase))
    q, phase, voltage = newton(sticking_fold, [mpf("0.4958090166"), mpf("-0.009598369927"), mpf("0.5875367161733")])
    found["impact_microactuator"]["fold"] = digits((voltage, q, phase))
    start = [mpf(each) for each in ("0.49888964", "-0.0711535", "-0.05831839", "3.40", "0.0149")]
    found["impact_microactuator"]["impacting at 0.65"] = digits(newton(impacting, start))
    print(found["impact_microactuator"], file=sys.stderr)
    print(json.dumps(found, indent=1))
