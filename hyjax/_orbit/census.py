"""The count of starts and orbits in a search, and the rule that ends it."""

import dataclasses

# The largest expected share of the starts that lead to orbits, and yet lead to none of those found.
UNSEEN = 2.5e-4
# So many starts without any orbit end a search: at 95 % confidence, fewer than 0.6 % of the starts lead to one.
FRUITLESS = 512


@dataclasses.dataclass(frozen=True)
class Census:
    """How many starts were tried, how many of them led to each orbit, how many to a state that returns at another phase of the
    system's time dependence, and a state of each orbit `outside` of the region to which one led.

    If any division of the starts among $w$ orbits is equally likely beforehand, then after $n$ starts that led to $w$ orbits the
    expected share of starts that lead to others is $w(w + 1)/n(n - 1)$. An orbit to which only one start led makes others likely
    (Good's estimate of their share is the number of such orbits over $n$).

    Source: Boender, Rinnooy Kan (1987), *Bayesian stopping rules for multistart global optimization methods*, Math. Program. 37,
    59-80; Good (1953), *The population frequencies of species*, Biometrika 40, 237-264.
    """

    tried: int = 0
    hits: tuple[int, ...] = ()
    out_of_phase: int = 0
    outside: tuple[tuple[float, ...], ...] = ()

    @property
    def unseen(self) -> float:
        """The expected share, among the starts that lead to orbits, of those that lead to orbits not yet found."""
        n, w = sum(self.hits), len(self.hits)
        return min(1.0, w * (w + 1) / (n * (n - 1))) if n > 1 else 1.0

    @property
    def complete(self) -> bool:
        """Whether the search may end."""
        if not self.hits:
            return self.tried >= FRUITLESS
        return self.unseen <= UNSEEN and min(self.hits) > 1

    @property
    def hint(self) -> str:
        """Advice for a search whose starts led out of the region, or to states that return at another phase; else empty."""
        hints = []
        if self.outside:
            state = ", ".join(f"{each:.6g}" for each in self.outside[0])
            hints.append(
                f"{len(self.outside)} starts led to an orbit outside of the region, such as one near ({state}). Give a region "
                "that holds it."
            )
        if self.out_of_phase:
            hints.append(self._phase)
        return " ".join(hints)

    @property
    def _phase(self) -> str:
        return (
            f"{self.out_of_phase} starts led to a state that returns at another phase of the system's time dependence "
            "(out_of_phase), which is no orbit: an orbit of a forced system closes after a multiple of the forcing's period. "
            "Give as many strides as close then, or section=hj.Stroboscope(mode, period), or make the phase a coordinate."
        )

    def __str__(self) -> str:
        n, w = sum(self.hits), len(self.hits)
        return (
            f"{n} of {self.tried} starts led to {w} orbit{'s' * (w != 1)}; the expected share of such starts that lead to orbits "
            f"not yet found is {self.unseen:.2g}{'. ' * bool(self.hint)}{self.hint.removesuffix('.')}"
        )
