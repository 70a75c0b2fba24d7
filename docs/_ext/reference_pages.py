"""The reference: one page a layer in `docs/reference/`, made at the build from the docstrings; git ignores the pages.

The docstrings are Markdown with formulas; an entry is a directive of Sphinx's Python domain with the docstring as its content.
"""

import ast
import pathlib
import re

import signatures
from docutils import nodes
from public_names import file_of, LAYERS, MODULES, PACKAGE, parsed, public_names, PublicName
from sphinx import addnodes
from theory_labels import in_order_of_the_theory, label as theory_label

_PATHS = {each.path for each in public_names()}
# What a name in backticks means: of the package, or of the folders whose names occur in no other.
_BY_NAME = {
    each.name: each.path
    for module in ("hyjax.study", "hyjax.phase", "hyjax.control", "hyjax.noise", "hyjax")
    for each in public_names()
    if each.module == module
}


def known_labels(source: pathlib.Path) -> set[str]:
    """The labels of sections of the theory and of pages of result codes."""
    pages = [path for folder in ("theory", "when_it_fails") for path in (source / folder).glob("*.md")]
    return {found for page in pages for found in re.findall(r"^\(([\w-]+)\)=$", page.read_text(), re.MULTILINE)}


def _parameters(node: ast.AST) -> set[str]:
    return {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)} | {
        each.target.id
        for each in ast.walk(node)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def linked(text: str, node: ast.AST) -> str:
    """The text with links: names of hyjax in backticks, unless they are those of arguments or fields; pages of `docs/`."""
    own = _parameters(node) | {getattr(node, "name", "")}

    def link(found: re.Match) -> str:
        name = found[1].removeprefix("hj.").removeprefix("hyjax.")
        inside_module = name.partition(".")[0] in MODULES and f"hyjax.{name}" in _PATHS
        if inside_module or (name in _BY_NAME and name not in own):
            return f"{{py:obj}}`{found[1]} <{f'hyjax.{name}' if inside_module else _BY_NAME[name]}>`"
        return found[0]

    text = re.sub(r"`docs/(\w+)\.md`", r"{doc}`/\1`", text)
    return re.sub(r"(?<![`}\w])`([\w.]+)`(?!`)", link, text)


def fenced(text: str) -> str:
    """The examples as blocks of an interactive session; in Markdown `>` would begin a quotation."""
    parts = re.split(r"((?:^>>> .*\n?(?:^(?!$).*\n?)*)+)", text + "\n", flags=re.MULTILINE)
    return "".join(f"```pycon\n{part.rstrip()}\n```\n" if part.startswith(">>>") else part for part in parts).rstrip()


def prose(docstring: str, node: ast.AST) -> str:
    """A docstring as MyST Markdown; code is left as it is."""
    blocks = re.split(r"(^```.*?^```$)", fenced(docstring), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else linked(part, node) for part in blocks)


def members(node: ast.ClassDef) -> list[str]:
    """Entries of the methods and properties that have a docstring."""
    entries = []
    for each in node.body:
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("_") or not ast.get_docstring(each):
            continue
        if "property" in {ast.unparse(decorator) for decorator in each.decorator_list}:
            returns = signatures.returned(each)
            head = f"````{{py:property}} {each.name}\n" + (f":type: {returns}\n" if returns else "")
        else:
            static = "static" in "".join(ast.unparse(decorator) for decorator in each.decorator_list)
            head = f"````{{py:method}} {each.name}{signatures.of_function(each, method=not static)}\n"
        entries.append(f"{head}:no-index-entry:\n\n{prose(ast.get_docstring(each) or '', each)}\n````")
    return entries


def codes(node: ast.ClassDef, labels: set[str]) -> str:
    """The result codes with their messages, each linked to its page."""
    lines = []
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            name, message = each.targets[0].id, ast.literal_eval(each.value)
            page = f"code-{name.replace('_', '-')}"
            shown = f"{{ref}}`{name} <{page}>`" if page in labels else f"`{name}`"
            lines.append(f"{shown}\n: {message}\n")
    return "\n".join(lines)


def entry(each: PublicName, labels: set[str]) -> str:
    """One entry: signature, docstring, links to theory and source, methods."""
    node = each.node
    if isinstance(node, ast.FunctionDef):
        signature = signatures.of_function(node)
    else:
        # A result is made by hyjax: its fields are in its docstring.
        signature = signatures.of_class(node) if "**Arguments:**" in each.docstring else ""
    parts = [prose(each.docstring, node)]
    if each.given_by:
        parts.insert(
            0,
            f"*A record that* {linked(f'`{each.given_by.split()[0]}`', ast.Module([], []))} *gives; no name of the package.*",
        )
    source = f"{{download}}`{each.file.relative_to(PACKAGE.parent)} </../{each.file.relative_to(PACKAGE.parent)}>`"
    theory = theory_label(each)
    links = [f"Theory: {{ref}}`{theory}`"] if theory in labels else []
    parts.append(" · ".join([*links, f"Source file: {source}"]))
    if isinstance(node, ast.ClassDef):
        parts += [codes(node, labels)] if each.name == "RESULTS" else members(node)
    body = "\n\n".join(parts)
    return f"`````{{py:{each.kind}}} {each.name}{signature}\n:module: {each.module}\n\n{body}\n`````\n"


def about(file: pathlib.Path) -> str:
    """The docstring of a file."""
    return prose(ast.get_docstring(parsed(file)) or "", ast.Module([], []))


def page(layer: str, labels: set[str]) -> str:
    """The page of a layer: what it is, a table of its names, and their entries."""
    names = sorted((each for each in public_names() if each.layer == layer), key=in_order_of_the_theory)
    # A page of the theory has the layer's name for its title.
    lines = [
        f"# Functions: {LAYERS[layer][0].lower()}{LAYERS[layer][1:]}",
        "",
        about(PACKAGE / layer / "__init__.py"),
        "",
    ]
    for module in dict.fromkeys(each.module for each in names):
        group = [each for each in names if each.module == module]
        if module == "hyjax.objectives":
            lines += ["## Objectives", "", about(file_of("objectives")), ""]
        for each in group:
            first = prose(each.docstring.split("\n\n")[0].replace("\n", " "), each.node)
            lines.append(f"- {{py:obj}}`{each.path.removeprefix('hyjax.')} <{each.path}>` — {first}")
        lines += ["", *(entry(each, labels) for each in group)]
    return "\n".join(lines) + "\n"


def models_page(labels: set[str]) -> str:
    """The shelf of models: title, equations, parameters with units, source file."""
    shelf = PACKAGE / "models" / "__init__.py"
    lines = ["# Models", "", about(shelf), ""]
    lines += [entry(each, labels) for each in public_names() if each.layer == "models"]
    for name in _model_names(parsed(shelf)):
        file = PACKAGE / "models" / f"{name}.py"
        lines += [f"## {name}", "", about(file), ""]
        lines += ["**Parameters**", "", *_model_parameters(parsed(file)), ""]
        lines += [f"Source file: {{download}}`hyjax/models/{name}.py </../hyjax/models/{name}.py>`", ""]
    return "\n".join(lines) + "\n"


def _model_names(shelf: ast.Module) -> tuple[str, ...]:
    for node in shelf.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "names":
            return ast.literal_eval(node.value)
    raise ValueError("hyjax/models/__init__.py: there is no tuple `names`.")


def _model_parameters(module: ast.Module) -> list[str]:
    """A table of the fields that `parameter(default, unit, text)` declares."""
    rows = []
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == "Params":
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.value, ast.Call) and len(each.value.args) >= 3:
                    default, unit, about = (ast.unparse(argument) for argument in each.value.args[:3])
                    rows.append(f"| `{ast.unparse(each.target)}` | {default} | {unit[1:-1]} | {about[1:-1]} |")
    return ["| name | default | unit | |", "|---|---|---|---|", *rows] if rows else []


def write(app, config):
    folder = pathlib.Path(app.srcdir) / "reference"
    labels = known_labels(pathlib.Path(app.srcdir))
    pages = {layer.strip("_"): page(layer, labels) for layer in LAYERS} | {"models": models_page(labels)}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def resolve(app, env, node, content):
    """Links of signatures: names of hyjax without their module; all other names, such as `Float`, are no links."""
    parent = node
    while parent is not None and not isinstance(parent, addnodes.desc_signature):
        parent = parent.parent
    if parent is None or node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    for target in (f"hyjax.{node['reftarget']}", *(f"hyjax.{module}.{node['reftarget']}" for module in MODULES)):
        if target in domain.objects:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
    return nodes.inline("", "", content)


def setup(app):
    app.connect("config-inited", write)
    # Before intersphinx, which would make links of `int` and `str`.
    app.connect("missing-reference", resolve, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
