"""A checked document -> the deployment, with what only the file system can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from mace_core.deployment.convert import convert
from mace_core.deployment.download import MIB, DownloadLimits, download, is_url, sha256
from mace_core.deployment.faults import Faults, shorten
from mace_core.deployment.names import c_name, refusal
from mace_core.deployment.objects import Deployment, Model, Port
from mace_core.deployment.ports import Setting, Settings, nameless_keys, ports
from mace_core.deployment.schema import Part, Schema
from mace_core.deployment.values import Document, read_document
from mace_core.distributions import advise_install
from mace_core.errors import MaceError
from mace_core.json_types import Json, JsonValue

PORT_KEYS = (
    "tensors",
    "shapes",
    "data_types",
    "data_formats",
    "ranges",
    "aliases",
    "mean",
    "scale",
    "std",
    "color",
)
OwnNames = Callable[[Model], tuple[tuple[str, ...], tuple[str, ...]] | None]
At = tuple[str | int, ...]


@dataclass(frozen=True)
class Installed:
    """The names to which a deployment file may refer; see `load_deployment`."""

    platforms: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    own_names: OwnNames | None = None


def parse(path: Path, installed: Installed) -> Deployment:
    """See `load_deployment`."""
    faults = Faults(path)
    document = read_document(Schema.read("deployment"), faults)
    deployment = _Reader(document, installed, may_download=not faults).deployment()
    faults.check()
    return deployment


def _plan(part: Part) -> str:
    """Say what will give a key its effect; "" where nothing is planned."""
    return f"; planned: {part['x-planned']}" if "x-planned" in part else ""


@dataclass(frozen=True)
class _Reader:
    """Makes the objects of a document.

    may_download: false for a file with faults, for which no host is asked.
    """

    document: Document
    installed: Installed
    may_download: bool = True
    notes: dict[str, None] = field(default_factory=dict)
    ignored: dict[str, None] = field(default_factory=dict)

    @property
    def faults(self) -> Faults:
        return self.document.faults

    def deployment(self) -> Deployment:
        value = self.document.mapping()
        properties = self.document.schema.root["properties"]
        parts = {k: self.document.schema.resolve(p) for k, p in properties.items() if k != "models"}
        keys = {k: s.value for k, s in self._settings(parts, {}, value, ()).items()}
        keys["model_data_format"] = keys.get("model_data_format") or keys["model_graph_format"]
        if (keys["model_graph_format"], keys["model_data_format"]) == ("file", "code"):
            problem = "model_data_format: is code while model_graph_format is file"
            self.faults.add(
                self.document.line("model_data_format"), problem, "make both file, or the graph code"
            )
        written = [str(value["library_name"])] if "library_name" in value else []
        library = next(iter(self._names(written, ("library_name",)).values()), "")
        names = self._names(self.document.mapping("models"), ("models",))
        models = tuple(_rename(self._model(key, ("models", key)), name) for key, name in names.items())
        abis = keys.pop("target_abis")
        notes = (*self.notes, *self.ignored)
        return Deployment(library, models, abis, MappingProxyType(keys), notes, tuple(self.ignored))

    def _names(self, written: Iterable[str], path: At) -> dict[str, str]:
        """The names as C has them, by how they are written.

        Notes those that change and those that cannot be.
        """
        c_names: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in written:
            line = self.document.line(*path, name) if path == ("models",) else self.document.line(*path)
            c_names[name] = c_name(name)
            other = taken.setdefault(c_names[name].lower(), name)
            if why := refusal(c_names[name]):
                self.faults.add(line, f"{path[0]}: {name!r} {why}", "choose another name")
            elif other != name:
                problem = f"models: {other!r} and {name!r} have one name in C, or differ only in case"
                self.faults.add(line, problem, "rename one of them")
            elif c_names[name] != name:
                place = f"{self.faults.place(line)}: {path[0]}"
                self.notes[f"{place}: {name!r} is {c_names[name]!r} in C and in file names"] = None
        return c_names

    def _settings(
        self, parts: Mapping[str, Part], inherited: Settings, stated: Json, path: At
    ) -> dict[str, Setting]:
        """Defaults, what is inherited, and what is given here, each as its key's type.

        Notes what has no effect yet.
        """
        settings = {k: Setting(convert(p["default"], p), 0) for k, p in parts.items() if "default" in p}
        settings.update(inherited)
        for key, value in stated.items():
            if key in parts and value is not None:
                settings[key] = Setting(convert(value, parts[key]), self.document.line(*path, key))
                self._note_ignored(key, value, parts[key], settings[key])
        return settings

    def _note_ignored(self, key: str, value: JsonValue, part: Part, setting: Setting) -> None:
        """Note a key that has no effect, or none yet, unless it asks for what happens anyway."""
        reason = part.get("x-not-yet") or part.get("x-no-effect")
        if not reason or self._is_idle(value, part, setting):
            return
        effect = "no effect yet" if "x-not-yet" in part else "no effect"
        self.ignored[
            f"{self.faults.place(setting.line)}: {key}: accepted; has {effect}: {reason}{_plan(part)}"
        ] = None

    def _is_idle(self, value: JsonValue, part: Part, setting: Setting) -> bool:
        """Tell whether a value is one that works, or the default."""
        if "x-ready" in part:
            return all(v in part["x-ready"] for v in (value if isinstance(value, list) else [value]))
        default = self.document.schema.root["properties"].get(part.get("x-default-from"), part).get("default")
        return default is not None and setting.value == convert(default, part)

    def _model(self, name: str, path: At) -> Model:
        stated = self.document.mapping("models", name)
        parts = {
            k: self.document.schema.resolve(p)
            for k, p in self.document.schema.definition("keys")["properties"].items()
        }
        common = self._settings(parts, {}, stated, path)
        stages = [
            self._stage(name, self._settings(parts, common, subgraph, place))
            for place, subgraph in self._subgraphs(stated, path)
        ]
        if len(stages) <= 1:
            return stages[0] if stages else self._stage(name, common)
        place = self.faults.place(self.document.line(*path, "subgraphs"))
        self.ignored[
            f"{place}: subgraphs: accepted; has no effect yet: a pipeline of several is not joined"
        ] = None
        stages.sort(key=lambda stage: int(str(stage.keys["order"])))
        main = self._stage(name, common) if "model_file_path" in common else stages[0]
        return Model(
            name,
            main.files,
            main.platform,
            main.runtimes,
            main.inputs,
            main.outputs,
            main.keys,
            tuple(stages),
        )

    def _subgraphs(self, stated: Json, path: At) -> Iterator[tuple[At, Json]]:
        """Yield the place and the keys of each subgraph, from a list or from a mapping of names."""
        subgraphs = stated.get("subgraphs")
        items: Iterable[tuple[str | int, JsonValue]] = ()
        if isinstance(subgraphs, Mapping):
            items = subgraphs.items()
        elif isinstance(subgraphs, list):
            items = enumerate(subgraphs)
        for key, subgraph in items:
            yield (*path, "subgraphs", key), subgraph if isinstance(subgraph, Mapping) else {}

    def _stage(self, name: str, keys: Settings) -> Model:
        files = tuple(filter(None, (self._file("model", keys), self._file("weight", keys))))
        platform = self._platform(keys)
        keys = self._with_names(keys, Model(name, files, platform))
        inputs, outputs = (self._ports(kind, keys) for kind in ("input", "output"))
        keys = self._split_states(keys)
        inputs, outputs = self._with_states(keys, inputs, outputs)
        port_keys = {*(f"input_{key}" for key in PORT_KEYS), *(f"output_{key}" for key in PORT_KEYS)}
        rest = {k: s.value for k, s in keys.items() if k not in port_keys}
        runtimes = rest.pop("runtime")
        self._known_runtimes("runtime", keys["runtime"], runtimes)
        limits = [word for word in rest["validation_threshold"] if word != "quantize"]
        self._known_runtimes("validation_threshold", keys["validation_threshold"], limits)
        rest["tuning"] = self._tuning(keys)
        return Model(name, files, platform, tuple(runtimes), inputs, outputs, MappingProxyType(rest))

    def _known_runtimes(self, key: str, stated: Setting, words: Sequence[str]) -> None:
        """Report each word that names neither a kind of hardware nor a target: builds would ignore it."""
        known = self.installed.runtimes
        for word in words if known and stated.line else ():
            if word not in known:
                close = get_close_matches(word, known, 1)
                remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                self.faults.add(
                    stated.line,
                    f"{key}: {word!r} is no kind of hardware and no target that is installed",
                    remedy,
                )

    def _with_names(self, keys: Settings, model: Model) -> Settings:
        """Return the settings with the model's own port names where the file gives none."""
        kinds = [kind for kind in ("input", "output") if nameless_keys(kind, keys)]
        if not kinds or self.installed.own_names is None:
            return keys
        nameless = set(chain.from_iterable(nameless_keys(kind, keys) for kind in kinds))
        without = {key: setting for key, setting in keys.items() if key not in nameless}
        # Without the model there are no names; that it is missing has been reported already.
        if self.faults or not model.files:
            return without
        try:
            names = self.installed.own_names(model)
        except MaceError as error:
            key = nameless_keys(kinds[0], keys)[0]
            self.faults.add(keys[key].line, f"{key}: {error}", f"name the tensors with {kinds[0]}_tensors")
            return without
        own_names = dict(zip(("input", "output"), names or ((), ()), strict=True))
        named = {
            f"{kind}_tensors": Setting(own_names[kind], keys[nameless_keys(kind, keys)[0]].line)
            for kind in kinds
            if own_names[kind]
        }
        return {**keys, **named}

    def _ports(self, kind: str, keys: Settings) -> tuple[Port, ...]:
        data = f"validation_{kind}s_data"
        if data in keys:
            keys = {**keys, data: Setting(tuple(self._resolve(f) for f in keys[data].value), keys[data].line)}
        return ports(kind, keys, self.faults)

    def _split_states(self, keys: Settings) -> Settings:
        """Return the settings with only names under `states`, and files of start values as `state_starts`."""
        stated = keys.get("states")
        if stated is None or not isinstance(stated.value, Mapping):
            return keys
        pairs: dict[str, str] = {}
        starts: dict[str, str] = {}
        for name, state in stated.value.items():
            if isinstance(state, str):
                pairs[name] = state
                continue
            pairs[name] = state["next"]
            if "start" in state:
                starts[name] = self._resolve(state["start"])
                if problem := _absent(Path(starts[name])):
                    remedy = "correct the path; it starts at this file's folder"
                    place = f"states: start of {name}: {problem}: {shorten(starts[name], 200)}"
                    self.faults.add(stated.line, place, remedy)
        keys = {**keys, "states": Setting(MappingProxyType(pairs), stated.line)}
        return {**keys, "state_starts": Setting(MappingProxyType(starts), stated.line)} if starts else keys

    def _with_states(
        self, keys: Settings, inputs: tuple[Port, ...], outputs: tuple[Port, ...]
    ) -> tuple[tuple[Port, ...], ...]:
        """Return the ports and those of the pairs under `states`, which need not be listed twice."""
        stated = keys.get("states")
        if stated is None or not isinstance(stated.value, Mapping):
            return inputs, outputs
        if len(set(stated.value.values())) < len(stated.value):
            problem = "states: two states have one output as their next value"
            self.faults.add(stated.line, problem, "pair each state with an output of its own")
        sides = ((inputs, stated.value.keys()), (outputs, stated.value.values()))
        return tuple(_add_ports(ports, names) for ports, names in sides)

    def _resolve(self, file: str) -> str:
        return file if is_url(file) else str(self.faults.path.parent / file)

    def _platform(self, keys: Settings) -> str | None:
        setting = keys.get("platform")
        if setting is None or setting.value is None:
            return None
        name = str(setting.value)
        if self.installed.platforms and name not in self.installed.platforms:
            close = get_close_matches(name, self.installed.platforms, 1)
            known = f"choose one of {', '.join(sorted(self.installed.platforms))}"
            remedy = advise_install("frontend", name) or (f"did you mean {close[0]!r}?" if close else known)
            self.faults.add(setting.line, f"platform: no frontend {name!r} is installed", remedy)
        return name

    def _file(self, kind: str, keys: Settings) -> Path | None:
        """The model or weight file: there, and with the checksum that is stated."""
        key = f"{kind}_file_path"
        setting, stated = keys.get(key), keys.get(f"{kind}_sha256_checksum")
        if setting is None or not setting.value:
            return None
        checksum = str(stated.value) if stated and stated.value else ""
        if is_url(str(setting.value)):
            limits = DownloadLimits(keys["download_max_seconds"].value, keys["download_max_mib"].value * MIB)
            return self._download(key, setting, checksum, limits)
        path = self.faults.path.parent / str(setting.value)
        if problem := _absent(path):
            self.faults.add(
                setting.line,
                f"{key}: {problem}: {shorten(str(path), 200)}",
                "correct the path; it starts at this file's folder",
            )
        elif checksum and path.is_dir():
            self.faults.add(
                stated.line if stated else 1,
                f"{kind}_sha256_checksum: {path} is a folder",
                "leave the checksum out",
            )
        elif checksum and (actual := sha256(path)) != checksum:
            self.faults.add(
                stated.line if stated else 1,
                f"{key}: the file's SHA-256 is {actual}, expected {checksum}",
                "get the file again",
            )
        return path

    def _tuning(self, keys: Settings) -> str:
        """The path of the tuning file, which is there; "" if none is named.

        What it says is read with the candidates at hand.
        """
        setting = keys["tuning"]
        if not setting.value:
            return ""
        path = self.faults.path.parent / str(setting.value)
        if problem := _absent(path):
            self.faults.add(
                setting.line,
                f"tuning: {problem}: {shorten(str(path), 200)}",
                "correct the path; it starts at this file's folder",
            )
        return str(path)

    def _download(self, key: str, setting: Setting, checksum: str, limits: DownloadLimits) -> Path | None:
        if not checksum:
            remedy = f"state {key.replace('file_path', 'sha256_checksum')} with the file's SHA-256"
            self.faults.add(setting.line, f"{key}: a download needs a checksum", remedy)
            return None
        if not self.may_download:
            return None
        try:
            return download(str(setting.value), checksum, limits)
        except MaceError as error:
            self.faults.add(
                setting.line, f"{key}: {error}", "check the address and the network, or download it by hand"
            )
            return None


def _absent(path: Path) -> str | None:
    """Return why nothing can be read at a path; None if something exists there."""
    try:
        path.stat()
    except FileNotFoundError:
        return "no such file"
    # As for a name that is too long, or a folder that may not be read.
    except (OSError, ValueError) as error:
        return (error.strerror if isinstance(error, OSError) else None) or "not a path"
    return None


def _rename(model: Model, name: str) -> Model:
    """A model and its stages under another name."""
    return replace(model, name=name, stages=tuple(replace(stage, name=name) for stage in model.stages))


def _add_ports(ports: tuple[Port, ...], names: Iterable[str]) -> tuple[Port, ...]:
    """Return the ports with those of more names.

    None where there are none, which stands for all that the model has.
    """
    known = {port.name for port in ports}
    return (*ports, *(Port(name) for name in names if name not in known)) if ports else ()
