"""Print the digits in `test_powered_walker.py`: gaits of the powered walker on level ground, without JAX.

Taylor series in mpmath with 30 digits, from equations written out here once more; the Jacobian by central differences, whose
step of 1e-9 leaves 1e-18. Some minutes.
"""

from mpmath import mp, mpf

mp.dps = 30
STEP = mpf(10) ** -9
# Push-off, stiffness, and a gait near by: theta, theta_rate, period.
GAITS = [
    ("0.1873798580048398", "2.512477760885756", "0.355176363", "-0.505195352", "1.740394232"),
    ("0.04", "0", "0.1945888445", "-0.2029605387", "3.8278129092"),
]


def stride(theta, rate, push_off, stiffness, near):
    def swing(t, x):
        phi_accel = mp.sin(x[0]) + (x[1] ** 2 - mp.cos(x[0])) * mp.sin(x[2]) - stiffness * x[2]
        return [x[1], mp.sin(x[0]), x[3], phi_accel]

    solution = mp.odefun(swing, 0, [theta, rate, 2 * theta, (1 - mp.cos(2 * theta)) * rate])
    t, dt = near, mpf(1)
    while abs(dt) > mpf(10) ** -26:
        x = solution(t)
        dt = -(2 * x[0] - x[2]) / (2 * x[1] - x[3])
        t += dt
    x = solution(t)
    return mp.matrix([-x[0], mp.cos(2 * x[0]) * x[1] + push_off * mp.sin(2 * x[0])]), t


def main() -> None:
    for each in GAITS:
        push_off, stiffness, theta, rate, period = map(mpf, each)
        x, residual = mp.matrix([theta, rate]), mpf(1)
        while residual > mpf(10) ** -19:
            after, period = stride(*x, push_off, stiffness, period)
            jacobian = mp.matrix(2, 2)
            for k in range(2):
                moved = mp.matrix([STEP * (j == k) for j in range(2)])
                ahead, behind = (stride(*(x + sign * moved), push_off, stiffness, period)[0] for sign in (1, -1))
                jacobian[:, k] = (ahead - behind) / (2 * STEP)
            residual = mp.norm(after - x)
            x += mp.lu_solve(mp.eye(2) - jacobian, after - x)
        trace = jacobian[0, 0] + jacobian[1, 1]
        multiplier = trace / 2 + mp.sqrt(mp.mpc(trace**2 / 4 - mp.det(jacobian)))
        print(each[:2], *(mp.nstr(number, 17) for number in (*x, period, multiplier)), flush=True)


if __name__ == "__main__":
    main()
