"""The deployment file: what the user asks for, as frozen objects."""

from mace_core.deployment.objects import Deployment, Device, Model, Port


def load_deployment(path, platforms=()):
    """Stand-in until the parser is there."""
    import yaml
    d=yaml.safe_load(path.read_text())
    ms=[]
    for n,m in d["models"].items():
        s=m["subgraphs"][0]
        sh=lambda k:tuple(map(int,s[k].split(","))) if k in s else None
        fs=lambda k:(str(path.parent/s[k]),) if k in s else ()
        def fmt(k):
            return s.get(k)
        ms.append(Model(n,(path.parent/m["model_file_path"],),m.get("platform"),("cpu",),
            (Port(s["input_tensors"],sh("input_shapes"),order=fmt("input_data_formats"),data=fs("validation_inputs_data")),),
            (Port(s["output_tensors"],sh("output_shapes"),order=fmt("output_data_formats"),data=fs("validation_outputs_data")),)))
    return Deployment(d["library_name"],tuple(ms))


__all__ = ["Deployment", "Device", "Model", "Port", "load_deployment"]
