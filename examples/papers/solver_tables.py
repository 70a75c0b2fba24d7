"""The tables of Dallas, Machairas, Papadopoulos (2017), *A comparison of ODE solvers for dynamical systems with impacts*, J.
Comput. Nonlinear Dyn. 12, 061016: points of seven solvers by three criteria, summed over 13 sets of parameters.

`SD` is the duration of the solution in seconds of MATLAB, `DT` the divergence time (eq. 32), `IAE` the integral of the absolute
error (eq. 33).
"""

SOLVERS = ("ode15s", "ode45", "ode23s", "ode113", "ode23tb", "ode23t", "ode23")
CRITERIA = ("SD", "DT", "IAE")
TOLERANCES = (1e-3, 1e-6, 1e-9)

# Of each tolerance and solver, in the order of `SOLVERS`: the points by each of `CRITERIA`. Table 3: transitions by `if ...
# else`.
TABLE_3 = {
    1e-3: (
        (102.77, 42.30, 102.31), (123.96, 75.90, 121.71), (96.16, 46.49, 115.66), (119.37, 55.94, 116.15),
        (106.99, 47.91, 117.59), (105.41, 47.00, 111.62), (125.44, 43.84, 115.04),
    ),
    1e-6: (
        (120.84, 99.63, 122.79), (127.78, 36.46, 120.60), (84.16, 18.90, 119.39), (127.07, 27.50, 122.66),
        (106.98, 18.94, 121.07), (104.77, 79.06, 119.96), (124.22, 15.78, 122.92),
    ),
    1e-9: (
        (127.21, 15.02, 113.75), (128.99, 87.01, 127.55), (83.44, 36.94, 119.54), (129.19, 28.02, 121.88),
        (109.19, 15.26, 102.74), (107.39, 19.97, 116.67), (123.37, 23.61, 118.61),
    ),
}  # fmt: skip

# Transitions by an event function.
TABLE_4 = {
    1e-3: (
        (87.50, 45.85, 100.76), (112.91, 74.44, 122.23), (85.26, 46.31, 120.02), (103.12, 67.55, 119.85),
        (98.19, 47.87, 118.86), (93.09, 45.52, 106.04), (115.76, 43.49, 119.84),
    ),
    1e-6: (
        (116.37, 98.45, 123.16), (125.51, 53.29, 124.23), (76.14, 18.90, 119.61), (123.70, 27.50, 128.16),
        (100.29, 18.85, 120.84), (95.42, 76.44, 120.07), (119.12, 15.83, 122.61),
    ),
    1e-9: (
        (126.23, 15.02, 110.67), (128.39, 112.28, 128.77), (75.89, 36.91, 119.41), (128.96, 44.91, 126.56),
        (102.33, 15.26, 102.23), (98.66, 19.97, 116.53), (119.39, 23.58, 118.65),
    ),
}  # fmt: skip

# Eq. 36 with the weights 2, 0, 1 of SD, DT, IAE, for Table 3 at 1e-6.
TABLE_5 = (364.47, 376.16, 287.71, 376.80, 335.03, 329.50, 371.36)
