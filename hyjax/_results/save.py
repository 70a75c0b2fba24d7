"""Results in files: `save`, `load`, what a file says about itself; and the file, a zip archive of NumPy arrays, `.npz`, and one
JSON text that describes them. Several of them by name are the groups of a zarr store.

No pickle: nothing in a file is executed. The text holds a checksum of each array, and the archive one of the text.
"""

import datetime
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._system.system import HybridSystem
from .._system.types import Params, require_kind
from .encoding import Decoder, Encoder, fingerprint, model_system, require_same_system, source_digest
from .labels import named_params
from .registry import load_xarray, needed, sweeps, version
from .working import warn

FORMAT = "hyjax result"
VERSION = 1
_TEXT, _CHECKSUM = "result.json", "result.json.sha256"
# In a group of a store, the file of its result.
_ARCHIVE = "hyjax_result"


def write_archive(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a file, complete or not at all: another file of that name is replaced at the end. `OSError` where this fails."""
    unfinished = _unfinished_path(path)
    try:
        _archive(unfinished, about, arrays)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _unfinished_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")


def _archive(file: Path | io.BytesIO, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the archive: the description, its checksum, and the arrays with theirs."""
    parts = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    sums = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    text = json.dumps({"format": FORMAT, "version": VERSION} | about | {"checksums": sums}, indent=1).encode()
    parts = {_TEXT: text, _CHECKSUM: hashlib.sha256(text).hexdigest().encode()} | parts
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def read_text(path: Path, file: io.BytesIO | None = None) -> dict[str, Any]:
    """The description in a file, or in the one within the group `path` of a store. `ValueError` for a file of another kind, of a
    newer format, or damaged."""
    try:
        with zipfile.ZipFile(file or path) as archive:
            if _TEXT not in archive.namelist():
                raise ValueError(f"{path}: this is not a result that hj.save wrote: it has no {_TEXT}.")
            text = _member(path, archive, _TEXT)
            checksum = _member(path, archive, _CHECKSUM)
    except zipfile.BadZipFile:
        raise ValueError(
            f"{path}: this is not a result that hj.save wrote, or it is damaged: it is no zip archive. A dataset (.nc) is "
            "read by xarray.load_dataset, a store (.zarr) by hj.load."
        ) from None
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise _damaged(path, _TEXT)
    about = json.loads(text)
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: this is not a result that hj.save wrote: its format is {about.get('format')!r}.")
    if about["version"] != VERSION:
        raise ValueError(
            f"{path}: the file has version {about['version']} of the format, written by hyjax "
            f"{about.get('versions', {}).get('hyjax')}; this hyjax reads version {VERSION}. Read it with that hyjax."
        )
    return about


def read_arrays(path: Path, about: dict[str, Any], file: io.BytesIO | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file by name. `ValueError` for one that is missing, or differs from its checksum."""
    arrays = {}
    with zipfile.ZipFile(file or path) as archive:
        for name, checksum in about["checksums"].items():
            part = _member(path, archive, name)
            if hashlib.sha256(part).hexdigest() != checksum:
                raise _damaged(path, name)
            arrays[name.removesuffix(".npy")] = np.lib.format.read_array(io.BytesIO(part), allow_pickle=False)
    return arrays


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise ValueError(f"{path}: the file is damaged: its part {name} is missing. Restore it from a copy.") from None
    except Exception:  # by the archive's own checksum, or any decoder before it
        raise _damaged(path, name) from None


def _damaged(path: Path, name: str) -> ValueError:
    return ValueError(
        f"{path}: the file is damaged: its part {name} differs from its checksum. Restore it from a copy."
    )


def _npy(array: np.ndarray) -> bytes:
    whole = io.BytesIO()
    np.lib.format.write_array(whole, array, allow_pickle=False)
    return whole.getvalue()


def save(path: str | Path, result: PyTree) -> None:
    r"""Write a result to a file, for `load`, to the last bit: an orbit or a batch of orbits, a branch, a trajectory, a special
    point, an optimized gait, a branch of optima; also several in a tuple, list or dictionary.

    `result.save(path)` does the same. The file is a zip archive of NumPy arrays, which `numpy.load(path)` opens without hyjax,
    and a description with checksums. It holds data and no code: of the system the names, of the parameters the numbers, no
    pickle. Objectives and constraints are functions: of those of `hyjax.objectives` such as `period` the file holds
    the name, of all others, also those that `hyjax.objectives` makes from arguments, the name and a digest of the source; `load`
    is given them again.

    **Arguments:** `path`: with the suffix `.npz`; a file of that name is replaced. `result`: of one system. Its shapes and units
    are stored as they are. Or `path` with the suffix `.zarr`, and `result` a dictionary, of one system or several: each part is a
    group of a new store, which has that part to the last bit, and for other programs the dataset of its `to_xarray`, of a
    branch with its special points, which are searched. **Returns:** nothing.

    `ValueError` for another suffix, for what is no result of hyjax, for none at all, for a traced result, for parts of different
    systems in a file, for a result that holds other functions of your own, for a store of anything but a dictionary, and for a
    `/` in a name.
    `OSError` where the file cannot be written, or the store exists. `ImportError` for a store without xarray and zarr.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> hj.save("gait.npz", orbit)
    >>> hj.load("gait.npz").period == orbit.period
    Array(True, dtype=bool)
    """
    require_kind(path, str | os.PathLike, "hj.save", "path", 'the path of a file, as in hj.save("gait.npz", orbit)')
    path = Path(path) if Path(path).suffix == ".zarr" else _checked(path, "save")
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, tuple | list) else (result,)
    if not parts:
        raise ValueError(f"hj.save: {path}: the {type(result).__name__} is empty: there is no result to write.")
    for part in parts:
        # Parameters of models have units.
        units = any("unit" in field.metadata for field in getattr(type(part), "__dataclass_fields__", {}).values())
        if units or not hasattr(part, "_tables") or isinstance(part, HybridSystem):
            raise ValueError(
                f"hj.save: {type(part).__name__} is no result of hyjax. Save an orbit, a branch, a trajectory, or a tuple, list "
                "or dictionary of them; a dataset has to_netcdf."
            )
    if path.suffix == ".zarr":
        _save_groups(path, result)
    else:
        write_archive(path, *_encoded(result))


def _encoded(result: PyTree) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a file."""
    encoder = Encoder()
    node = encoder.node(result)
    about = {
        "kind": _kind(result),
        "saved": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "machine": f"{platform.system()} {platform.machine()}, {jax.default_backend()}",
        "parameters": _parameters(encoder.params),
        "system": fingerprint(encoder.systems[0]) if encoder.systems else None,
        "functions": encoder.sources(),
        "result": node,
    }
    return about, encoder.arrays


def _save_groups(path: Path, results: PyTree) -> None:
    """Write a store, complete or not at all."""
    xarray = load_xarray()
    needed("zarr", "data", "Stores of results")
    names = list(results) if isinstance(results, dict) else [None]
    if not all(isinstance(name, str) and name[:1] not in ("", ".") and "/" not in name for name in names):
        raise ValueError(
            f"hj.save: {path}: a store holds results by name, with no / in it and no dot before it; this is "
            f"{names if isinstance(results, dict) else type(results).__name__}. Give a dictionary, such as "
            '{"walks": branch}, or a path with the suffix .npz.'
        )
    if path.exists():
        raise FileExistsError(f"hj.save: {path}: the store exists. Give another path, or remove it.")
    groups = {"/": xarray.Dataset(attrs={"format": FORMAT, "names": names})}
    for name, result in results.items():
        file = io.BytesIO()
        _archive(file, *_encoded(result))
        held = result.to_xarray() if hasattr(result, "to_xarray") else xarray.Dataset()
        groups[name] = held.assign({_ARCHIVE: ("byte", np.frombuffer(file.getvalue(), np.uint8))})
    unfinished = _unfinished_path(path)
    try:
        xarray.DataTree.from_dict(groups).to_zarr(unfinished, zarr_format=2)
        os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _groups_of(path: Path) -> dict[str, io.BytesIO] | None:
    """The files in the groups of a store that `save` wrote, by name; `None` for another store. `ValueError` where one is lost."""
    try:
        attributes = json.loads((path / ".zattrs").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(attributes, dict) or attributes.get("format") != FORMAT:
        return None
    root = needed("zarr", "data", "Stores of results").open_group(path, mode="r", use_consolidated=False)
    try:
        return {name: io.BytesIO(root[f"{name}/{_ARCHIVE}"][...].tobytes()) for name in root.attrs["names"]}
    except KeyError as error:
        raise _damaged(path, error.args[0]) from None


def load(
    path: str | Path,
    *,
    system: HybridSystem | None = None,
    params: Params | None = None,
    functions: Mapping[str, Callable] | None = None,
    describe: bool = False,
) -> Any:
    r"""Read a result that `save` wrote: equal to the last bit, and usable as the result of the function that computed it. Or open
    the store that `sweep(out=...)` wrote.

    **Arguments:** `path`: of the file, with the suffix `.npz`; of a store of results, `.zarr`, which are returned by name, with
    `describe` the description of each; or of the store of a sweep, `.zarr`, which takes no other argument.
    `system`: that of the result; not needed for a model of `hyjax.models`. `params`: an example of the parameters,
    whose values do not matter, where their class is the user's; not needed for models, dictionaries, tuples and arrays.
    `functions`: of an optimization, by their names in the file, which `describe` lists. Without one of them the result has all
    its numbers, tables and pictures; what has to call the function, such as `follow_optimum`, raises `ValueError`.

    `describe`: return what the file says about itself, also where its system is not at hand: a dictionary with the `kind` of
    the result; `saved`, the date in UTC; `versions` of hyjax, Python and the packages that compute; `machine`; `parameters` by
    name, with `units` where they are known; `system`: the name of the `model`, or `None`, the `modes` with their coordinates, the
    `transitions`, and digests of the `source` of the functions; the `functions` of an optimization that are not named in hyjax,
    with digests of their source.

    **Returns:** the result, in the shapes and units in which it was saved. Of a store the `xarray.Dataset` that `sweep` returns,
    read on access, each of whose checksums is verified first; points not yet computed have the result -1 and are NaN.

    `ValueError` where the file does not fit, with the remedy: another kind of file, another version of the format, a damaged or
    missing part (each has a checksum), a system whose modes, coordinates or transitions differ, parameters whose leaves differ,
    float64 in a session of 32 bits, a function that the file does not name, and where `system` or `params` is needed and not
    given. A warning where the source of a function has changed since: the numbers may no longer be those of this system, or of
    this objective. `FileNotFoundError` without the file. `SolveError` where a file of a store is missing or damaged, or is of
    another place or another sweep; the message names the chunk and the remedy; or where another
    program wrote the store. `ImportError` for a store without xarray and zarr.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> hj.save("gait.npz", orbit)
    >>> hj.load("gait.npz", system=wheel.system, params=params).period == orbit.period
    Array(True, dtype=bool)
    >>> hj.load("gait.npz", describe=True)["parameters"]["slope"]
    {'value': 0.2, 'units': 'rad'}
    """
    if Path(path).suffix == ".zarr" or Path(path).is_dir():
        if not Path(path).exists():
            raise FileNotFoundError(f"hj.load: {path}: there is no such store.")
        if (groups := _groups_of(Path(path))) is None:
            return sweeps().open_sweep(path)
        read = lambda name, file: _loaded(Path(path) / name, file, system, params, functions, describe)
        return {name: read(name, file) for name, file in groups.items()}
    return _loaded(_checked(path, "load"), None, system, params, functions, describe)


def _loaded(path: Path, file: io.BytesIO | None, system, params, functions, describe: bool) -> Any:
    """The result of a file, or of the one within the group `path` of a store; with `describe` its description of itself."""
    about = read_text(path, file)
    if describe:
        known = {name: about[name] for name in ("kind", "saved", "versions", "machine", "parameters", "system")}
        return known | {"functions": about.get("functions", {})}
    if about["system"] is not None:
        system = _system(path, about, system)
        changed, sizes = require_same_system(path, about["system"], system), about["system"].get("sizes")
        system = system.with_sizes(lambda k: sizes[k])
        if changed:
            warn(
                f"{path}: the source of the {', '.join(changed)} has changed since the result was saved on {about['saved']}: its "
                "numbers may not be those of this system."
            )
    functions, sources = functions or {}, about.get("functions", {})
    _check_functions(path, about["saved"], sources, functions)
    return Decoder(path, read_arrays(path, about, file), system, params, sources, functions).value(about["result"])


def _checked(path: str | Path, caller: str) -> Path:
    if Path(path).suffix != ".npz":
        raise ValueError(
            f"hj.{caller}: {path}: the format is a NumPy archive; give a path with the suffix .npz. A dataset (.nc) is read by "
            "xarray.load_dataset, the store of a sweep or of results by name (.zarr) by hj.load."
        )
    return Path(path)


def _system(path: Path, about: dict[str, Any], given: HybridSystem | None) -> HybridSystem:
    """The system of a file: the one given, or that of the model."""
    if given is not None:
        return given
    if about["system"]["model"] is not None:
        return model_system(about["system"]["model"], about["system"].get("made for", ""))
    raise ValueError(
        f"{path}: the result ({about['kind']}) is of a system of one's own, with the modes {', '.join(about['system']['modes'])}."
        " A file holds no code: give the system, and an example of its parameters if these have a class of their own: "
        "hj.load(path, system=system, params=Params(...))."
    )


def _check_functions(path: Path, saved: str, sources: Mapping[str, str | None], given: Mapping[str, Callable]) -> None:
    """`ValueError` for a function that the file does not name, a warning for one whose source has changed."""
    if unknown := [name for name in given if name not in sources]:
        named = f"names {', '.join(map(repr, sources))}" if sources else "names none"
        raise ValueError(f"{path}: functions has {unknown[0]!r}; the file {named}.")
    differs = lambda one, other: None not in (one, other) and one != other
    if changed := [name for name, fn in given.items() if differs(source_digest(fn), sources[name])]:
        warn(
            f"{path}: the source of the function {', '.join(changed)} has changed since the result was saved on {saved}: its "
            "numbers may not be those of this function."
        )


def _kind(result: PyTree) -> str:
    if isinstance(result, dict | tuple | list):
        parts = result.values() if isinstance(result, dict) else result
        return f"{type(result).__name__} of {', '.join(dict.fromkeys(map(_kind, parts)))}"
    return type(result).__name__


def _versions() -> dict[str, str]:
    packages = ("jax", "jaxlib", "diffrax", "equinox", "optimistix", "lineax", "numpy")
    return {"hyjax": version(), "python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in packages
    }


def _parameters(params: list[Params]) -> dict[str, Any]:
    """The numbers among the first parameters of a result; of many, the count and the range."""
    found = {}
    for name, (values, about) in (named_params(params[0]) if params else {}).items():
        value = values.tolist() if values.size <= 16 else f"{values.size} values from {values.min()} to {values.max()}"
        found[name] = {"value": value} | about
    return found
