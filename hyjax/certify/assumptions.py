"""What the proofs of this folder rest on."""

from .forcing import Forcing
from .section_plane import SectionChart


def assumptions_of(forcing: Forcing, section: SectionChart) -> tuple[str, ...]:
    """What a proof about an orbit rests on, a sentence each."""
    sentences = [
        "Numbers are IEEE binary64, rounded to nearest; operations may be fused, summed in any order, flushed below 2^-1022.",
        "XLA compiles +, -, *, / and square roots without fast math; no other function of the machine is trusted.",
        "The parameters, and the constants in the functions of the system, are the floats that are given, exactly.",
        "The domains of the modes are not part of the proof.",
    ]
    if not section.derived:
        sentences.append(
            "The section is as given: its lift of the chart of a state is the state after the closing jump."
        )
    return (*sentences, forcing.repeats) if forcing.repeats else tuple(sentences)
