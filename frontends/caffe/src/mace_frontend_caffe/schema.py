"""Describes the messages of caffe.proto to protobuf, as far as this frontend reads them.

No maintained package ships Caffe's own. The text form knows fields by name, so that their numbers are free
there; the binary form is read only for the layers' weights, with the field numbers of caffe.proto. Packed
floats of blobs are declared as bytes: their encoding is the same, and numpy reads them without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ENUMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Phase": ("TRAIN", "TEST"),
        "Pool": ("MAX", "AVE", "STOCHASTIC"),
        "Round": ("CEIL", "FLOOR"),
        "Mode": ("LEARN", "INFERENCE"),
        "Eltwise": ("PROD", "SUM", "MAX"),
        "Region": ("ACROSS_CHANNELS", "WITHIN_CHANNEL"),
        "Reduce": ("NONE", "SUM", "ASUM", "SUMSQ", "MEAN"),
        "Code": ("NO_CODE", "CORNER", "CENTER_SIZE", "CORNER_SIZE"),
        # In the order of V1LayerParameter.LayerType: the number of each is its place.
        "OldType": (
            *("NONE", "ACCURACY", "BNLL", "CONCAT", "CONVOLUTION", "DATA", "DROPOUT"),
            *("EUCLIDEAN_LOSS", "FLATTEN", "HDF5_DATA", "HDF5_OUTPUT", "IM2COL", "IMAGE_DATA"),
            *("INFOGAIN_LOSS", "INNER_PRODUCT", "LRN", "MULTINOMIAL_LOGISTIC_LOSS", "POOLING"),
            *("RELU", "SIGMOID", "SOFTMAX", "SOFTMAX_LOSS", "SPLIT", "TANH", "WINDOW_DATA"),
            *("ELTWISE", "POWER", "SIGMOID_CROSS_ENTROPY_LOSS", "HINGE_LOSS", "MEMORY_DATA"),
            *("ARGMAX", "THRESHOLD", "DUMMY_DATA", "SLICE", "MVN", "ABSVAL", "SILENCE"),
            *("CONTRASTIVE_LOSS", "EXP", "DECONVOLUTION"),
        ),
    }
)

NAMES_OF_2014: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("BNLL", "LRN", "MVN")},
        **{name.upper(): name for name in ("AbsVal", "ArgMax", "ReLU", "TanH")},
        "HDF5_DATA": "HDF5Data",
        "HDF5_OUTPUT": "HDF5Output",
        "SOFTMAX_LOSS": "SoftmaxWithLoss",
    }
)
"""Layer types of 2014 whose present name is not the same words in CamelCase."""

_AXIS = "axis:int32"
_LAYER = (
    "bottom:string* top:string* phase:Phase include:Rule* exclude:Rule* argmax_param:ArgMax "
    "batch_norm_param:BatchNorm bias_param:Bias bn_param:Bn clip_param:Clip concat_param:Concat "
    "convolution_param:Convolution crop_param:Crop detection_output_param:Detection dropout_param:Dropout "
    "eltwise_param:EltwiseParam elu_param:Elu embed_param:Embed exp_param:Exp flatten_param:Flatten "
    "group_norm_param:GroupNorm inner_product_param:InnerProduct input_param:Input interp_param:Interp "
    "l2normalization_param:LpNorm log_param:Exp lrn_param:Lrn mvn_param:Mvn norm_param:Norm "
    "parameter_param:Parameter permute_param:Permute pooling_param:Pooling power_param:Power "
    "prelu_param:Prelu prior_box_param:PriorBox recurrent_param:Recurrent reduction_param:Reduction "
    "relu_param:Relu reorg_param:Reorg reshape_param:Reshape resize_nearest_param:ResizeNearest "
    "roi_pooling_param:RoiPooling scale_param:Scale shuffle_channel_param:Shuffle slice_param:Slice "
    "softmax_param:Softmax spp_param:Spp swish_param:Swish threshold_param:Threshold tile_param:Tile "
    "upsample_param:Upsample"
)
TEXT: Mapping[str, str] = MappingProxyType(
    {
        "BlobShape": "dim:int64*",
        "Rule": "phase:Phase min_level:int32 max_level:int32 stage:string*",
        "ArgMax": f"out_max_val:bool top_k:uint32=1 {_AXIS}",
        "BatchNorm": "use_global_stats:bool=true eps:float=1e-5",
        "Bias": f"{_AXIS}=1 num_axes:int32=1",
        "Bn": "eps:float=1e-5 bn_mode:Mode=INFERENCE",
        "Clip": "min:float max:float",
        "Concat": f"{_AXIS}=1 concat_dim:uint32",
        "Convolution": (
            "num_output:uint32 bias_term:bool=true pad:uint32* kernel_size:uint32* stride:uint32* "
            "dilation:uint32* pad_h:uint32 pad_w:uint32 kernel_h:uint32 kernel_w:uint32 stride_h:uint32 "
            f"stride_w:uint32 group:uint32=1 {_AXIS}=1"
        ),
        "Crop": f"{_AXIS}=2 offset:uint32*",
        "Detection": (
            "num_classes:uint32 share_location:bool=true background_label_id:int32 nms_param:Nms "
            "code_type:Code=CORNER variance_encoded_in_target:bool keep_top_k:int32=-1 "
            "confidence_threshold:float"
        ),
        "Nms": "nms_threshold:float=0.3 top_k:int32 eta:float=1",
        "EltwiseParam": "operation:Eltwise=SUM coeff:float*",
        "Dropout": "dropout_ratio:float=0.5 scale_train:bool=true",
        "Elu": "alpha:float=1",
        "Embed": "num_output:uint32 input_dim:uint32 bias_term:bool=true",
        "Exp": "base:float=-1 scale:float=1 shift:float",
        "Flatten": f"{_AXIS}=1 end_axis:int32=-1",
        "GroupNorm": "group_num:int32=1 eps:float=1e-5",
        "InnerProduct": f"num_output:uint32 bias_term:bool=true {_AXIS}=1 transpose:bool",
        "Input": "shape:BlobShape*",
        "Interp": (
            "height:int32 width:int32 zoom_factor:int32=1 shrink_factor:int32=1 pad_beg:int32 pad_end:int32"
        ),
        "LpNorm": f"{_AXIS}=-1",
        "Lrn": "local_size:uint32=5 alpha:float=1 beta:float=0.75 norm_region:Region k:float=1",
        "Mvn": "normalize_variance:bool=true across_channels:bool eps:float=1e-9",
        "Norm": "across_spatial:bool=true channel_shared:bool=true eps:float=1e-10",
        "Parameter": "shape:BlobShape",
        "Permute": "order:uint32*",
        "Pooling": (
            "pool:Pool pad:uint32 pad_h:uint32 pad_w:uint32 kernel_size:uint32 kernel_h:uint32 "
            "kernel_w:uint32 stride:uint32 stride_h:uint32 stride_w:uint32 global_pooling:bool "
            "round_mode:Round ceil_mode:bool=true"
        ),
        "Power": "power:float=1 scale:float=1 shift:float",
        "Prelu": "channel_shared:bool",
        "PriorBox": (
            "min_size:float* max_size:float* aspect_ratio:float* flip:bool=true clip:bool "
            "variance:float* img_size:uint32 img_h:uint32 img_w:uint32 step:float step_h:float "
            "step_w:float offset:float=0.5"
        ),
        "Recurrent": "num_output:uint32 expose_hidden:bool",
        "Reduction": f"operation:Reduce=SUM {_AXIS} coeff:float=1",
        "Relu": "negative_slope:float",
        "Reorg": "stride:uint32=2 reverse:bool",
        "Reshape": f"shape:BlobShape {_AXIS} num_axes:int32=-1",
        "ResizeNearest": "height_scale:float=2 width_scale:float=2",
        "RoiPooling": "pooled_h:uint32 pooled_w:uint32 spatial_scale:float=1",
        "Scale": f"{_AXIS}=1 num_axes:int32=1 bias_term:bool",
        "Shuffle": "group:uint32=1",
        "Slice": f"{_AXIS}=1 slice_point:uint32* slice_dim:uint32",
        "Softmax": f"{_AXIS}=1",
        "Spp": "pyramid_height:uint32 pool:Pool",
        "Swish": "beta:float=1",
        "Threshold": "threshold:float",
        "Tile": f"{_AXIS}=1 tiles:int32=1",
        "Upsample": "scale:int32=2 height:int32 width:int32 upsample_h:int32 upsample_w:int32",
        "Layer": f"name:string type:string {_LAYER}",
        "OldLayer": f"name:string type:OldType@1000 {_LAYER} layer:Older@1001",
        "Older": "name:string",
        "Net": (
            "name:string input:string* input_dim:int32* input_shape:BlobShape* layer:Layer* layers:OldLayer*"
        ),
    }
)
"""Messages of the text form as `field:type`, with `*` for a repeated field, `=` before a default, `@` before
a field number where it is not the field's place.

The defaults are those of caffe.proto, and for layers that it lacks those of the forks that brought them.
`Layer` and `OldLayer`, the form of 2014, give their fields the same numbers except for the type, so that a
message of one can be parsed as the other (`upgrade_layer`).
"""

BINARY: Mapping[str, str] = MappingProxyType(
    {
        "Shape": "dim:int64*@1",
        "Blob": (
            "num:int32@1 channels:int32@2 height:int32@3 width:int32@4 "
            "data:bytes@5 shape:Shape@7 doubles:bytes@8"
        ),
        "Weights": "name:string@1 type:string@2 blobs:Blob*@7",
        "OldWeights": "name:string@4 blobs:Blob*@6",
        "Model": "name:string@1 layers:OldWeights*@2 layer:Weights*@100",
    }
)
"""Messages of the binary form, with the numbers of caffe.proto."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Mapping[str, int] = MappingProxyType(
    {
        "string": _Field.TYPE_STRING,
        "bytes": _Field.TYPE_BYTES,
        "bool": _Field.TYPE_BOOL,
        "float": _Field.TYPE_FLOAT,
        "int32": _Field.TYPE_INT32,
        "int64": _Field.TYPE_INT64,
        "uint32": _Field.TYPE_UINT32,
    }
)


def create_net() -> Any:
    """Return an empty network of the text form."""
    return _message_classes()["mace.caffe.text.Net"]()


def create_model() -> Any:
    """Return an empty network of the binary form, which has names and weights alone."""
    return _message_classes()["mace.caffe.binary.Model"]()


def upgrade_layer(old: Any) -> Any:
    """Return a layer of the form of 2014 in the present one."""
    layer = _message_classes()["mace.caffe.text.Layer"]()
    layer.ParseFromString(old.SerializeToString())
    layer.DiscardUnknownFields()
    name = ENUMS["OldType"][old.type]
    layer.type = NAMES_OF_2014.get(name) or "".join(word.capitalize() for word in name.split("_"))
    return layer


@cache
def _message_classes() -> Mapping[str, Any]:
    """Return protobuf's classes of all messages by their full names."""
    # A pool of our own: other installed packages register a "caffe.proto" in the default one, and two files
    # that define the same message are an error.
    pool = descriptor_pool.DescriptorPool()
    names = []
    for form, messages in (("text", TEXT), ("binary", BINARY)):
        package = f"mace.caffe.{form}"
        file = descriptor_pb2.FileDescriptorProto(
            name=f"mace_caffe_{form}.proto", package=package, syntax="proto2"
        )
        if form == "text":
            _describe_enums(file)
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for number, text in enumerate(fields.split(), 1):
                _describe_field(message.field.add(), text, number, package)
            names.append(f"{package}.{name}")
        pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def _describe_enums(file: Any) -> None:
    """Add the enums to a file, each inside a message of its own.

    The names of an enum's values belong to what surrounds the enum, and several enums here have a MAX or a
    SUM.
    """
    for name, values in ENUMS.items():
        enum = file.message_type.add(name=f"{name}Values").enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)


def _describe_field(field: Any, text: str, place: int, package: str) -> None:
    """Fill the description of a field from its text in TEXT or BINARY."""
    text, _, number = text.partition("@")
    text, _, default = text.partition("=")
    field.name, _, kind = text.partition(":")
    field.number = int(number) if number else place
    field.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in ENUMS:
        field.type = _Field.TYPE_ENUM
        field.type_name = f".{package}.{kind}Values.{kind}"
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
    if default:
        field.default_value = default
