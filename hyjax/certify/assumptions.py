"""What the proofs of this folder rest on."""

from .forcing import Forcing


def assumptions_of(forcing: Forcing) -> tuple[str, ...]:
    """What a proof about an orbit rests on, a sentence each."""
    sentences = [
        "Numbers are IEEE binary64, rounded to nearest; operations may be fused, summed in any order, flushed below 2^-1022.",
        "XLA compiles +, -, *, / and square roots without fast math; no other function of the machine is trusted.",
        "The parameters, and the constants in the functions of the system, are the floats that are given, exactly.",
        "The domains of the modes are not part of the proof.",
    ]
    return (*sentences, forcing.repeats) if forcing.repeats else tuple(sentences)
