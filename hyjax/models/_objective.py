"""Checks of a model's objectives: functions `(orbit, params) -> number` in its dictionary `objectives`."""


def require_sequence(orbit, sequence: tuple[str, ...], name: str) -> None:
    """`ValueError` for an orbit of another sequence, whose nodes are not the states just after each heel strike."""
    if orbit.sequence != sequence:
        raise ValueError(
            f"{name}: the orbit has the sequence {', '.join(orbit.sequence)}; this objective is defined for strides of the "
            f"sequence {', '.join(sequence)}."
        )
