"""Arguments that no command should take: each is refused by one line and exit status 2, before anything is compiled."""

import pytest

MANY, HUGE = "9" * 23, "1000000000"
CONTINUE = ("continue", "simplest_walker", "--where", "slope", "--from", "0.01", "--to")
SWEEP = ("sweep", "rimless_wheel", "--where", "slope=0.2:0.3:3")
WHERE = ("sweep", "rimless_wheel", "--where")
ATTRACTOR = ("attractor", "rimless_wheel", "--where", "slope=0.2:0.3:3")
BASIN = ("basin", "simplest_walker")
BALL = ("simulate", "bouncing_ball", "--t1")
GAIT = ("gait", "simplest_walker")
OVER = ("optimize", "powered_walker", "--objective", "period", "--over")
OPTIMIZE = (*OVER, "stiffness=0:6")

# The arguments, and what the line names.
HOSTILE = [
    (("",), ""),
    (("gait", ""), "''"),
    (("gait", "../models"), "'../models'"),
    (("gait", "simplest_walker\n"), "simplest_walker"),
    ((*GAIT, "--strides", MANY), "--strides"),
    ((*GAIT, "--strides", "-1"), "--strides"),
    ((*GAIT, "--strides", "1.5"), "--strides"),
    ((*GAIT, "--strides", ""), "--strides"),
    ((*GAIT, "--strides", "²"), "--strides"),
    ((*GAIT, "--starts", HUGE), "--starts"),
    ((*GAIT, "--orbit", "0"), "--orbit"),
    ((*GAIT, "--orbit", MANY), "--orbit"),
    ((*GAIT, "--param", ""), "--param"),
    ((*GAIT, "--param", "=1"), "--param"),
    ((*GAIT, "--param", "slope="), "--param slope"),
    ((*GAIT, "--param", "slope=nan"), "--param slope"),
    ((*GAIT, "--param", "slope=inf"), "--param slope"),
    ((*GAIT, "--param", "slope=1e308"), "--param slope"),
    ((*GAIT, "--param", "slope=1/0"), "--param slope"),
    ((*GAIT, "--param", "slope=1/2/3"), "--param slope"),
    ((*GAIT, "--param", "slope=٣"), "--param slope"),
    ((*GAIT, "--param", "slope=\x00"), "--param slope"),
    ((*GAIT, "--param", "slope=2"), "slope=2.0"),
    ((*GAIT, "--param", "sloppe=0.01"), "Did you mean 'slope'?"),
    (("gait", "compass_gait", "--param", "mu=2deg"), "--param mu: '2deg' is an angle"),
    (("gait", "compass_gait", "--param", "mu=2rad"), "--param mu: '2rad' is an angle"),
    (("gait", "bouncing_ball", "--param", "restitution=-0.1"), "restitution=-0.1"),
    ((*GAIT, "--sequence", ""), "--sequence"),
    ((*GAIT, "--sequence", "swing,,"), "--sequence"),
    ((*GAIT, "--sequence", "hop"), "--sequence"),
    ((*GAIT, "--plot", ""), ""),
    ((*GAIT, "--plot", "gait"), "gait"),
    ((*GAIT, "--plot", "."), "."),
    ((*GAIT, "--plot", "/proc/gait.png"), "/proc"),
    ((*GAIT, "--plot", "/dev/null/gait.png"), "/dev/null"),
    ((*GAIT, "--animate", "gait.png"), ".png"),
    (("gait", "buck_converter", "--animate", "buck.gif"), "--animate: buck_converter does not define outline"),
    (
        ("simulate", "piecewise", "--t1", "1", "--animate", "piecewise.gif"),
        "--animate: piecewise does not define outline",
    ),
    ((*GAIT, "--json", "--json=1"), "--json"),
    ((*GAIT, "extra"), "extra"),
    (("simulate", "bouncing_ball"), "--t1"),
    ((*BALL, ""), "--t1"),
    ((*BALL, "nan"), "--t1"),
    ((*BALL, "-inf"), "--t1"),
    ((*BALL, "1e308"), "--t1"),
    ((*BALL, "2deg"), "--t1: '2deg' is an angle"),
    ((*BALL, "1", "--max-jumps", HUGE), "--max-jumps"),
    ((*BALL, "1", "--max-jumps", MANY), "--max-jumps"),
    ((*BALL, "1", "--x0", ""), "--x0"),
    ((*BALL, "1", "--x0", "1,nan"), "--x0"),
    ((*BALL, "1", "--x0", "1,,2"), "--x0"),
    ((*BALL, "1", "--x0", "1,2,3"), "(3,)"),
    ((*BALL, "1", "--mode", ""), "--mode"),
    ((*BALL, "1", "--out", "ball"), "netCDF"),
    ((*BALL, "1", "--out", "/proc/ball.nc"), "/proc"),
    ((*CONTINUE, ""), "--to"),
    ((*CONTINUE, "nan"), "--to"),
    ((*CONTINUE, "1e308"), "--to"),
    ((*CONTINUE, "0.01"), "--to"),
    (("continue", "simplest_walker", "--where", "slop", "--from", "0.01", "--to", "0.02"), "--where"),
    (("continue", "simplest_walker", "--where", "", "--from", "0.01", "--to", "0.02"), "--where"),
    (("continue", "simplest_walker", "--where", "slope", "--from", "inf", "--to", "0.02"), "--from"),
    ((*CONTINUE, "0.02", "--step", "1e-300"), "--step"),
    ((*CONTINUE, "0.02", "--step", "nan"), "--step"),
    ((*CONTINUE, "0.02", "--step", "-0.1"), "--step"),
    ((*CONTINUE, "0.02", "--max-points", HUGE), "--max-points"),
    ((*CONTINUE, "0.02", "--max-points", "0"), "--max-points"),
    ((*CONTINUE, "0.02", "--doublings", "1000"), "--doublings"),
    ((*CONTINUE, "0.02", "--doublings", "-1"), "--doublings"),
    ((*CONTINUE, "0.02", "--out", "branch.csv"), "branch.csv"),
    ((*WHERE, ""), "--where"),
    ((*WHERE, "slope"), "--where"),
    ((*WHERE, "slope="), "--where"),
    ((*WHERE, "slope=0:1"), "--where"),
    ((*WHERE, "slope=0:1:²"), "--where"),
    ((*WHERE, "slope=0:1:٣"), "--where"),
    ((*WHERE, "slope=0:1:-3"), "--where"),
    ((*WHERE, "slope=0:1:0"), "--where"),
    ((*WHERE, "slope=0:1:1e3"), "--where"),
    ((*WHERE, "slope=0:1:99999999999"), "--where"),
    ((*WHERE, f"slope=0:1:{MANY}{MANY}"), "--where"),
    ((*WHERE, "slope=0:nan:5"), "--where"),
    ((*WHERE, "slope=0:1e308:5"), "--where"),
    ((*WHERE, "slope=1:1:5"), "--where"),
    ((*WHERE, "spokes=0deg:1:5"), "--where"),
    ((*WHERE, "slope=0.1:0.2:90000", "--where", "spokes=6:8:90000"), "--where"),
    ((*SWEEP, "--where", "slope=0.1:0.2:4"), "--where"),
    ((*SWEEP, "--chunk", "0"), "--chunk"),
    ((*SWEEP, "--chunk", MANY), "--chunk"),
    ((*SWEEP, "--resume"), "--resume"),
    ((*SWEEP, "--tolerance", "nan"), "--tolerance"),
    ((*SWEEP, "--tolerance", "0"), "--tolerance"),
    ((*SWEEP, "--tolerance", "-1"), "--tolerance"),
    ((*SWEEP, "--out", ""), "path exists already"),
    ((*SWEEP, "--out", "/proc/sweep.zarr"), "/proc"),
    ((*SWEEP, "--out", "/nowhere/sweep.zarr"), "/nowhere"),
    ((*ATTRACTOR, "--strides", MANY), "--strides"),
    ((*ATTRACTOR, "--strides", "1"), "--strides"),
    ((*ATTRACTOR, "--keep", HUGE), "--keep"),
    (("attractor", "rimless_wheel", "--where", "slope=0.2:0.3:9000000", "--keep", "1000"), "--keep"),
    ((*ATTRACTOR, "--x0", "inf,1"), "--x0"),
    ((*ATTRACTOR, "--out", "attractor.zarr"), "attractor.zarr"),
    ((*BASIN, "--points", HUGE), "--points"),
    ((*BASIN, "--points", "1"), "--points"),
    ((*BASIN, "--strides", MANY), "--strides"),
    ((*BASIN, "--over", ""), "--over"),
    ((*BASIN, "--over", "theta=0:1:5", "--over", "theta=0:2:5"), "--over"),
    ((*BASIN, "--over", "theta=0:1:50000", "--over", "theta_rate=0:2:50000"), "--over"),
    (("basin", "rimless_wheel", "--over", "angle=0:1:5"), "--over"),
    (("basin", "rimless_wheel", "--over", "theta=0:1:5"), "--over"),
    (("optimize", "powered_walker", "--objective", "", "--over", "stiffness=0:6"), "--objective"),
    (("optimize", "powered_walker", "--objective", "theta", "--over", "stiffness=0:6"), "'theta'"),
    (("optimize", "buck_converter", "--objective", "speed", "--over", "inductance=0.01:0.1"), "'speed'"),
    (("optimize", "powered_walker", "--objective", "period"), "--over"),
    ((*OVER, ""), "--over"),
    ((*OVER, "stiffness"), "--over"),
    ((*OVER, "=0:1"), "--over"),
    ((*OVER, "stiffness="), "--over"),
    ((*OVER, "stiffness=0:"), "--over stiffness"),
    ((*OVER, "stiffness=:6"), "--over stiffness"),
    ((*OVER, "stiffness=0:inf"), "--over stiffness"),
    ((*OVER, "stiffness=nan:6"), "--over stiffness"),
    ((*OVER, "stiffness=0:1e308"), "--over stiffness"),
    ((*OVER, "stiffness=6:6"), "--over"),
    ((*OVER, "stiffness=0:٣"), "--over stiffness"),
    ((*OVER, "stiffness=0:6:10"), "--over"),
    ((*OVER, "slope=0:2"), "slope=2.0"),
    ((*OVER, "push_of=0:1"), "Did you mean 'push_off'?"),
    ((*OPTIMIZE, "--over", "stiffness=1:2"), "--over"),
    ((*OPTIMIZE, "--subject-to", ""), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "speed"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "=0.4"), "''"),
    ((*OPTIMIZE, "--subject-to", "speed="), "--subject-to speed"),
    ((*OPTIMIZE, "--subject-to", "speed>=nan"), "--subject-to speed"),
    ((*OPTIMIZE, "--subject-to", "speed<=1e308"), "--subject-to speed"),
    ((*OPTIMIZE, "--subject-to", "speed>0.4"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "speed=>0.4"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "speed=0.1<=0.4"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "__class__=1"), "'__class__'"),
    ((*OPTIMIZE, "--subject-to", "speed\n=1\n2"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "speed=1", "--subject-to", "speed=1"), "--subject-to"),
    ((*OPTIMIZE, "--subject-to", "speed>=1", "--subject-to", "speed<=1"), "'speed'"),
    ((*OPTIMIZE, "--subject-to", "speed=1", "--subject-to", "period=1"), "--subject-to"),
    ((*OPTIMIZE, "--starts", "0"), "--starts"),
    ((*OPTIMIZE, "--starts", MANY), "--starts"),
    ((*OPTIMIZE, "--strides", "0"), "--strides"),
    ((*OPTIMIZE, "--orbit", "0"), "--orbit"),
    ((*OPTIMIZE, "--sequence", "hop"), "--sequence"),
    ((*OPTIMIZE, "--param", "stiffness=-1"), "stiffness=-1.0"),
    ((*OPTIMIZE, "--plot", "best"), "best"),
    ((*OPTIMIZE, "--animate", "best.png"), ".png"),
    (("optimize", "", "--objective", "period", "--over", "stiffness=0:6"), "''"),
    (("models", "nobody"), "nobody"),
    (("models", "bouncing_ball", "slip"), "slip"),
    (("reproduce", "nothing"), "nothing"),
]


@pytest.mark.parametrize("arguments, named", HOSTILE, ids=[" ".join(each[0][:1] + each[0][2:]) for each in HOSTILE])
def test_refused_by_one_line(command, monkeypatch, arguments, named):
    def computed(*_, **__):
        raise AssertionError("began to compute")

    import hyjax._orbit.orbit
    import hyjax._orbit.search
    import hyjax._sweep.batches

    monkeypatch.setattr(hyjax._orbit.orbit, "periodic_orbit", computed)
    monkeypatch.setattr(hyjax._orbit.search, "search", computed)
    monkeypatch.setattr(hyjax._sweep.batches.BatchMap, "__call__", computed)
    ran = command(*arguments)
    assert ran.returncode == 2, ran
    assert len(ran.stderr.splitlines()) == 1 and ran.stderr.startswith("hyjax: "), ran.stderr
    assert named in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""


def test_there_are_many():
    assert len(HOSTILE) >= 60
