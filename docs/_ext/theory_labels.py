"""From public names to the sections of the theory that derive their equations."""

from public_names import PublicName

# Labels without their prefix `theory-`.
SECTIONS = {
    "hybrid-system": "Mode Transition HybridSystem every filippov RESULTS simulate Trajectory Event Samples Arc",
    "flow-to-guard": "flow_to_guard Impact Integrator",
    "saltation": "saltation_matrix",
    "return-map": "ReturnMap Stride Section Stroboscope Crossing",
    "orbits": """periodic_orbit PeriodicOrbit Footfalls Level SingleShooting MultipleShooting find_orbits Orbits SolveError
        objectives.period objectives.speed objectives.step_length plot.phase_portrait plot.time_series plot.orbit_figure
        plot.animate_orbit plot.walk plot.PlacedArc plot.shapes plot.gait_map plot.GaitMap""",
    "multipliers": "objectives.spectral_radius objectives.contraction plot.multiplier_plane",
    "continuation": "continuation Branch PseudoArclength plot.branch_diagram",
    "bifurcations": "SpecialPoint switch_branch locus plot.locus_diagram",
    "manifolds": "Manifold plot.manifold_figure",
    "normal-forms": "NormalForm",
    "nonsmooth-forms": "NonsmoothForm",
    "circles": "InvariantCircles",
    "equilibria": (
        "phase.equilibrium phase.Equilibrium EquilibriumBranch EquilibriumPoint EquilibriumLocus plot.equilibrium_diagram"
    ),
    "codimension-two": "Diagram plot.diagram_figure",
    "edges": "edge_state smallest_push SmallestPush",
    "bouligand": "phase.bouligand_derivative phase.BouligandDerivative",
    "covariance": """noise.covariance noise.Covariance noise.Noise noise.stationary_covariance noise.stride_covariance
        control.sensitivity_norm objectives.sensitivity plot.covariance_figure""",
    "riccati": """control.riccati control.RiccatiSolution control.regulator control.Regulator control.Tracking
        control.stride_feedback control.StrideFeedback control.ClosedLoop control.ilqr control.IlqrSolution
        control.IlqrHistory plot.ilqr_figure""",
    "kalman": "noise.kalman_filter noise.Filtered noise.Estimates noise.rts_smoother plot.estimate_figure",
    "phase": """phase.phase_response phase.PhaseResponse phase.ResponseArc phase.isostable_response phase.IsostableResponse
        phase.entrainment phase.Entrainment plot.response_figure plot.tongue_figure""",
    "lyapunov": "phase.lyapunov_spectrum phase.LyapunovSpectrum",
    "optimization": """optimize OptimizedOrbit Constraint objectives.InteriorPoint follow_optimum OptimumBranch ActiveSetChange
        objectives.along objectives.largest objectives.smallest objectives.integral objectives.impact_loss
        objectives.positive_work objectives.negative_work objectives.cost_of_transport objectives.Negative
        plot.optimization_figure plot.optimum_figure plot.animate_optimization""",
    "plans": "control.HeldInputs control.Plan OptimizedPlan PlanFeedback plot.plan_figure",
    "fits": "fit Fitted plot.fit_figure",
    "sweep": """sweep attractor basin plot.sweep_figure plot.attractor_figure plot.basin_figure""",
    "solvers": """study.solver_study study.solver_points study.quantity_study study.recommend_integrator study.Recommendation
        solvers.AdamsPECE solvers.NDF solvers.Radau5 solvers.Rodas5P solvers.Rosenbrock23 solvers.TRBDF2
        solvers.Trapezoidal plot.work_precision_figure plot.points_figure""",
    "certificates": """certify.attracting certify.Certificate certify.Disturbance certify.euler_tube certify.EulerTube
        certify.krawczyk certify.ProvedOrbit certify.Enclosed certify.proved_basin certify.ProvedBasin certify.published_radius
        certify.sharp_radius certify.OneSidedLipschitz certify.logarithmic_norm certify.radial_quotient
        certify.stroboscopic_inclusion certify.StroboscopicInclusion certify.certified_tube certify.certified_set
        certify.certificate_figure certify.certified_region certify.proved_orbit_figure""",
    "contact": """contact.Contact contact.Mechanism contact.lagrangian contact.contact_system
        contact.start contact.set_name contact.impact contact.relabelling""",
    "virtual-constraints": """control.virtual_constraints control.VirtualConstraints control.HybridZeroDynamics
        control.bezier""",
    "robots": "robots.from_mujoco robots.Robot robots.RobotParams robots.walker robots.Walker",
}
# Files, caches, elementary functions and pictures of what is simulated: they have no equation of their own in the theory.
WITHOUT_EQUATION = {
    "hyjax.plot.animate",
    "hyjax.plot.draw",
    "hyjax.plot.explore",
    "hyjax.plot.Explorer",
    "hyjax.load",
    "hyjax.parameter",
    "hyjax.save",
    "hyjax.fast.compile_for",
    "hyjax.fast.cos",
    "hyjax.enable_cache",
    "hyjax.fast.Purpose",
    "hyjax.fast.sin",
    "hyjax.fast.sincos",
    "hyjax.models.load",
    "hyjax.plot.animate_robot",
    "hyjax.plot.animate_trajectory",
    "hyjax.plot.robot_figure",
    "hyjax.plot.save_animation",
    "hyjax.plot.sketch",
    "hyjax.plot.trajectory_figure",
}

_LABELS = {f"hyjax.{name}": f"theory-{section}" for section, names in SECTIONS.items() for name in names.split()}


def label(each: PublicName) -> str | None:
    """The label of the section, as `theory-saltation`; `None` for a name without an equation."""
    if each.path in WITHOUT_EQUATION:
        return None
    return _LABELS[each.path]


def in_order_of_the_theory(each: PublicName) -> int:
    """A key to sort names by: a function stands before its result, what has no equation last."""
    return list(_LABELS).index(each.path) if each.path in _LABELS else len(_LABELS)
