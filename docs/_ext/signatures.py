"""Signatures as the source writes them: `x: Float[Array, "n"]`, and not what an import makes of it."""

import ast
import copy

SHAPED = ("Float", "Int", "Bool", "Complex", "Inexact")


class _Unquoted(ast.NodeTransformer):
    """Names in quotes, such as `"xarray.Dataset"`, without them; shapes in brackets keep theirs."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "Literal":
            return node
        if ast.unparse(node.value) in SHAPED and isinstance(node.slice, ast.Tuple):
            # A shape of one axis begins with a space in the source, for linters.
            array, shape = node.slice.elts
            node.slice = ast.Tuple([array, ast.Constant(ast.literal_eval(shape).strip())])
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def _annotation(node: ast.expr | None) -> ast.expr | None:
    return None if node is None else _Unquoted().visit(copy.deepcopy(node))


def of_function(node: ast.FunctionDef, method: bool = False) -> str:
    """`(x, *, t=0.0) -> Stride`, without `self`."""
    arguments = copy.deepcopy(node.args)
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        each.annotation = _annotation(each.annotation)
    text = ast.unparse(arguments)
    if method:
        text = text.removeprefix("self").removeprefix(", ")
    result = returned(node)
    return f"({text})" + (f" -> {result}" if result else "")


def returned(node: ast.FunctionDef) -> str:
    """The annotation of what a function returns."""
    annotation = _annotation(node.returns)
    return "" if annotation is None else ast.unparse(annotation)


def _default(value: ast.expr | None) -> tuple[bool, str | None]:
    """Whether a field is an argument, and its default."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("eqx.field", "dataclasses.field", "field"):
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "init" in given and ast.unparse(given["init"]) == "False":
            return False, None
        return True, ast.unparse(given["default"]) if "default" in given else None
    return True, None if value is None else ast.unparse(value)


def of_class(node: ast.ClassDef) -> str:
    """The arguments of `__init__`, or the fields."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return of_function(each, method=True).removesuffix(" -> None")
    parts = []
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            if ast.unparse(each.annotation).startswith("ClassVar"):
                continue
            shown, default = _default(each.value)
            if shown:
                annotation = ast.unparse(_Unquoted().visit(copy.deepcopy(each.annotation)))
                parts.append(f"{each.target.id}: {annotation}" + (f" = {default}" if default is not None else ""))
    return f"({', '.join(parts)})"
