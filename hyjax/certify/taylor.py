r"""Taylor coefficients in time of a flow, by recurrences over the jaxpr of its vector field.

With $u_n$ the coefficients of $u(t)$, $(uv)_n = \sum_j u_j v_{n-j}$, $(\sin u)_n = \frac1n\sum_j j u_j (\cos u)_{n-j}$ and so on,
and $x_{n+1} = f_n / (n + 1)$ for $\dot x = f(x)$. The jaxpr is read twice: for the order zero by functions of Taylor models, and
once for all further orders, in a loop.

Source: Moore (1966), *Interval Analysis*, Ch. 11; Griewank, Walther (2008), *Evaluating Derivatives*, Sec. 13.2.
"""

import jax
import jax.numpy as jnp
from jax.extend import core as jex

from . import functions
from .interpret import enclosed, evaluate, FUNCTIONS, read, refuse, STRUCTURAL, structural
from .rounding import EPS, TINY, UNIT, up
from .taylor_model import (
    add,
    constant,
    convolve,
    embed,
    multiply,
    negative,
    Series,
    subtract,
    TaylorModel,
    total,
    zeros,
)

_TRIGONOMETRIC = ("sin", "cos")


def over(a: TaylorModel, number) -> TaylorModel:
    """The quotient by a number that is an exact float."""
    quotient = a.coefficients / number
    rounding = jnp.sum(jnp.abs(quotient), axis=0) * EPS
    return TaylorModel(quotient, up(a.radius / number + rounding + TINY, a.basis.size), a.basis)


def weighted(a: Series) -> Series:
    """The coefficients multiplied by their orders."""
    order = jnp.arange(a.radius.shape[0], dtype=a.radius.dtype)
    product = a.coefficients * order.reshape((-1,) + (1,) * (a.coefficients.ndim - 1))
    radius = a.radius * order.reshape((-1,) + (1,) * (a.radius.ndim - 1))
    rounding = jnp.sum(jnp.abs(product), axis=1) * (2 * UNIT)
    return Series(product, up(radius + rounding, a.basis.size), a.basis)


def _varying(jaxpr) -> set:
    """The variables that depend on the first input, the state."""
    varying = {jaxpr.invars[0]}
    for equation in jaxpr.eqns:
        if any(not isinstance(atom, jex.Literal) and atom in varying for atom in equation.invars):
            varying.update(equation.outvars)
    return varying


class _Recurrences:
    """What must be remembered of a jaxpr's variables for the recurrences, and the recurrences."""

    def __init__(self, closed: jex.ClosedJaxpr, basis, orders: int):
        self.jaxpr, self.basis, self.orders = closed.jaxpr, basis, orders
        self.varying = _varying(closed.jaxpr)
        # Sine and cosine of one variable share their recurrences, under the index of the first of them.
        self.pair: dict = {}
        for i, equation in enumerate(self.jaxpr.eqns):
            if equation.primitive.name in _TRIGONOMETRIC and self.varies(equation.invars[0]):
                self.pair.setdefault(equation.invars[0], i)

    def varies(self, atom) -> bool:
        return not isinstance(atom, jex.Literal) and atom in self.varying

    def start(self, known: dict) -> dict:
        """Series of all that the recurrences need, with their order zero; the keys are indices of equations and names."""
        memory = {}
        self.known = known

        def remember(key, value):
            value = embed(value, self.basis)
            memory[key] = zeros(self.orders, value).put(0, value)

        for i, equation in enumerate(self.jaxpr.eqns):
            name = equation.primitive.name
            inputs = [read(known, atom) for atom in equation.invars]
            if not any(self.varies(atom) for atom in equation.invars):
                continue
            if name == "mul" and all(self.varies(atom) for atom in equation.invars):
                remember((i, "a"), inputs[0])
                remember((i, "b"), inputs[1])
            elif name == "div" and self.varies(equation.invars[1]):
                remember((i, "b"), inputs[1])
                remember((i, "q"), known[equation.outvars[0]])
                memory[i, "1/b"] = functions.reciprocal(embed(inputs[1], self.basis))
            elif name in _TRIGONOMETRIC:
                if self.pair[equation.invars[0]] != i:
                    continue
                sine, cosine = functions.sin_cos(embed(inputs[0], self.basis))
                remember((i, "u"), inputs[0])
                remember((i, "s"), sine)
                remember((i, "c"), cosine)
            elif name in FUNCTIONS:
                remember((i, "u"), inputs[0])
                remember((i, "y"), known[equation.outvars[0]])
                if name == "atan":
                    square = multiply(inputs[0], inputs[0])
                    remember((i, "d"), add(square, constant(jnp.ones(square.shape), self.basis)))
                    memory[i, "1/d"] = functions.reciprocal(memory[i, "d"][0])
                elif name in ("sqrt", "log"):
                    base = known[equation.outvars[0]] if name == "sqrt" else inputs[0]
                    memory[i, "1/y"] = functions.reciprocal(embed(base, self.basis))
        return memory

    def order(self, n, number, x: TaylorModel, memory: dict) -> tuple[TaylorModel, dict]:
        """The coefficient of order `n >= 1` of the vector field, from that of the state; `number` is `n` as a float."""
        known, memory = {self.jaxpr.invars[0]: x}, dict(memory)

        def coefficient(atom):
            """Of order `n`: zero for what does not vary."""
            if self.varies(atom):
                return known[atom]
            value = read(self.known, atom)
            return constant(jnp.zeros(value.shape), self.basis) if enclosed(value) else value

        def put(key, value):
            memory[key] = memory[key].put(n, value)
            return memory[key]

        for i, equation in enumerate(self.jaxpr.eqns):
            atoms, name = equation.invars, equation.primitive.name
            if not any(self.varies(atom) for atom in atoms):
                continue
            known.update(
                zip(
                    equation.outvars,
                    self._outputs(i, equation, atoms, name, coefficient, put, memory, n, number),
                    strict=True,
                )
            )
        return embed(coefficient(self.jaxpr.outvars[0]), self.basis), memory

    def _outputs(self, i, equation, atoms, name, coefficient, put, memory, n, number) -> list:
        values = [coefficient(atom) for atom in atoms]
        if name in STRUCTURAL:
            return [structural(equation, values)]
        if name in ("add", "add_any"):
            return [add(*values)]
        if name == "sub":
            return [subtract(*values)]
        if name == "neg":
            return [negative(values[0])]
        if name == "reduce_sum":
            return [total(values[0], equation.params["axes"])]
        if name == "convert_element_type":
            return [values[0]]
        if name == "mul":
            return [self._product(i, atoms, values, put, n)]
        if name == "div":
            return [self._quotient(i, atoms, values, put, memory, n)]
        if name in _TRIGONOMETRIC:
            first = self.pair[atoms[0]]
            if first != i:
                # The coefficient of order n has been put.
                return [memory[first, "s" if name == "sin" else "c"][n]]
            rates = weighted(put((i, "u"), values[0]))
            sine = over(convolve(rates, memory[i, "c"], n), number)
            cosine = over(negative(convolve(rates, memory[i, "s"], n)), number)
            put((i, "s"), sine)
            put((i, "c"), cosine)
            return [sine if name == "sin" else cosine]
        if name in FUNCTIONS:
            return [self._function(i, name, values[0], put, memory, n, number)]
        if name == "select_n":
            return [self._chosen(atoms, values)]
        if name in ("max", "min", "abs"):
            return [self._folded(name, atoms, values)]
        if name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"):
            return [self.known[equation.outvars[0]]]
        if name == "sign":
            return [constant(jnp.zeros(values[0].shape), self.basis)]
        refuse(name)

    def _product(self, i, atoms, values, put, n):
        if all(self.varies(atom) for atom in atoms):
            return convolve(put((i, "a"), values[0]), put((i, "b"), values[1]), n)
        varying = self.varies(atoms[1])
        factor = embed(read(self.known, atoms[not varying]), self.basis)
        return multiply(factor, values[varying])

    def _quotient(self, i, atoms, values, put, memory, n):
        if not self.varies(atoms[1]):
            return multiply(values[0], functions.reciprocal(embed(read(self.known, atoms[1]), self.basis)))
        earlier = convolve(memory[i, "q"], put((i, "b"), values[1]), n)
        quotient = multiply(subtract(values[0], earlier), memory[i, "1/b"])
        put((i, "q"), quotient)
        return quotient

    def _function(self, i, name, value, put, memory, n, number):
        u, y = put((i, "u"), value), memory[i, "y"]
        if name == "exp":
            result = over(convolve(weighted(u), y, n), number)
        elif name == "sqrt":
            # y_n = (u_n - sum of y_j y_{n-j} over 0 < j < n) / 2 y_0
            inner = _without_first(y)
            half = over(subtract(value, convolve(inner, inner, n)), 2.0)
            result = multiply(half, memory[i, "1/y"])
        elif name == "log":
            earlier = over(convolve(weighted(y), u, n), number)
            result = multiply(subtract(value, earlier), memory[i, "1/y"])
        else:
            # y' d = u', with d = 1 + u^2.
            d = put((i, "d"), convolve(u, u, n))
            earlier = over(convolve(weighted(y), d, n), number)
            result = multiply(subtract(value, earlier), memory[i, "1/d"])
        put((i, "y"), result)
        return result

    def _chosen(self, atoms, values):
        """A case that is chosen with certainty; nothing is known of the rates of the others."""
        which = read(self.known, atoms[0])
        certain = getattr(which, "certain", True)
        chosen = functions.where(getattr(which, "value", which), values[2], values[1])
        return _known_where(certain, chosen)

    def _folded(self, name, atoms, values):
        inputs = [read(self.known, atom) for atom in atoms]
        if name == "abs":
            u = inputs[0]
            factor = jnp.where(u.center < 0, -1.0, 1.0)
            certain = jnp.abs(u.center) > u.spread
            folded = TaylorModel(values[0].coefficients * factor, values[0].radius, values[0].basis)
            return _known_where(certain, folded)
        apart = subtract(*inputs)
        certain = jnp.abs(apart.center) > apart.spread
        first = (apart.center > 0) if name == "max" else (apart.center < 0)
        return _known_where(certain, functions.where(first, values[0], values[1]))


def _without_first(a: Series) -> Series:
    return Series(a.coefficients.at[0].set(0), a.radius.at[0].set(0), a.basis)


def _known_where(certain, a: TaylorModel) -> TaylorModel:
    return TaylorModel(a.coefficients, jnp.where(certain, a.radius, jnp.inf), a.basis)


def flow_coefficients(closed: jex.ClosedJaxpr, x: TaylorModel, others: list, orders: int) -> Series:
    r"""The Taylor coefficients $x_0, \dots, x_{\text{orders}}$ in time of the flow of $\dot x = f(x, \dots)$ from $x$.

    **Arguments:** `closed`: the core jaxpr of the field, whose first input is the state, shape `(n,)`. `x`: the initial states.
    `others`: values of its other inputs. **Returns:** a series of `orders + 1` Taylor models of shape `(n,)`.
    """
    results, known = evaluate(closed, [x, *others])
    recurrences = _Recurrences(closed, x.basis, orders)
    memory = recurrences.start(known)
    states = zeros(orders + 1, x).put(0, x).put(1, embed(results[0], x.basis))

    def advance(n, carry):
        states, memory = carry
        number = jnp.asarray(n, x.radius.dtype)
        rate, memory = recurrences.order(n, number, states[n], memory)
        return states.put(n + 1, over(rate, number + 1)), memory

    states, _ = jax.lax.fori_loop(1, orders, advance, (states, memory))
    return states
