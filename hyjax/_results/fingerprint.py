"""What identifies a system in a file: the names in it, and digests of the source of its functions."""

import ast
import contextlib
import functools
import hashlib
import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any

from .._system.system import HybridSystem, with_rest
from . import registry


def fingerprint(system: HybridSystem) -> dict[str, Any]:
    """The modes with their coordinates, the transitions, and a digest of the source of each function that has one; for a model of
    `hyjax.models` its name."""
    functions = {}
    for name, mode in system.modes.items():
        functions[f"vector field of {name}"] = mode.vector_field
    for each in system.transitions:
        functions[f"guard from {each.source} to {each.target}"] = each.guard
        functions[f"reset from {each.source} to {each.target}"] = each.reset
    digests = {role: source_digest(fn) for role, fn in functions.items()}
    model, kind = _model_and_kind(system)
    return {
        "model": model,
        **({"made for": kind} if kind else {}),
        "modes": {name: list(mode.coordinates) for name, mode in system.modes.items()},
        **({"held": held} if (held := {name: list(m.held) for name, m in system.modes.items() if m.held}) else {}),
        "transitions": [
            [each.source, each.target, *(["at once"] if each.at_once else []), *(["family"] if each.is_family else [])]
            for each in system.transitions
        ],
        **({"sizes": [way._members or 1 for way in system.transitions]} if system.families else {}),
        "source": {role: digest for role, digest in digests.items() if digest},
    }


def _model_and_kind(system: HybridSystem) -> tuple[str | None, str]:
    """The name of the model, and the kind of its system: see `hyjax.models.orbit_systems`."""
    models, plain = registry.models(), system.unsized()
    # A system of a model that has not been imported cannot be this one.
    known = [name for name in models.names if f"{models.__name__}.{name}" in sys.modules]
    for name in known:
        own = sys.modules[f"{models.__name__}.{name}"].system
        if own is system or own == plain:
            return name, ""
    for name in known:
        for kind, own in models.orbit_systems(name).items():
            if own == plain:
                return name, kind
    return None, ""


def model_of(system: HybridSystem | None) -> ModuleType | None:
    """The model of `hyjax.models` that has this system, or for whose orbits it is made; `None` for another system."""
    name = None if system is None else _model_and_kind(system)[0]
    return None if name is None else registry.models().load(name)


def model_system(name: str, kind: str = "") -> HybridSystem:
    """The system of that kind of the model of that name; `ValueError` for an unknown one."""
    return registry.models().orbit_systems(name)[kind] if kind else registry.models().load(name).system


def require_same_system(path: Any, stored: dict[str, Any], given: HybridSystem) -> list[str]:
    """`ValueError` unless a system has the modes, coordinates and transitions of a stored fingerprint.

    **Returns:** the functions whose source differs.
    """
    own = fingerprint(given)
    for part in ("modes", "transitions"):
        if own[part] != stored[part]:
            raise ValueError(
                f"{path}: the system given has the {part} {own[part]}; that of the file has {stored[part]}. Give the system with "
                "which the result was computed."
            )
    return [role for role, digest in stored["source"].items() if own["source"].get(role, digest) != digest]


def source_digest(fn: Any) -> str | None:
    """A digest of a function's source, without its comments and layout; `None` where there is no source."""
    while isinstance(fn, functools.partial) or getattr(fn, "func", None) is with_rest:
        fn = fn.args[0] if fn.func is with_rest else fn.func
    try:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(fn, "__func__", fn))))
    except (OSError, TypeError):
        return None
    # The lines of a lambda are part of a larger expression.
    with contextlib.suppress(SyntaxError):
        text = ast.unparse(ast.parse(text))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
