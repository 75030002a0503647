"""The C++ program of an export, written out from its recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

Values = Mapping[str, Any]

_TYPES = {"u64": "uint64_t", "i64": "int64_t", "i32": "int32_t", "f32": "float"}
_BITS = {"bf16": "bf16_bits", "fp16": "fp16_bits", "fp32": "fp32_bits"}
_CLUSTER = "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"


@cache
def _template() -> str:
    return resources.files("kernels").joinpath("export", "example.cpp.in").read_text("utf-8")


def example_source(recipe: Values) -> str:
    """The program that makes a recipe's launch by the driver API, with nothing but cuda.h."""
    m, k = recipe["operands"]["a"]["shape"]
    n = recipe["operands"]["b"]["shape"][1]
    parts = {
        "TITLE": f"Launches {recipe['kernel']} for C = A*B of {m} x {n} x {k}.",
        "NAMES": f"constexpr int64_t M = {m}, N = {n}, K = {k};",
        "MEMORY": "\n".join(_memory(recipe)),
        "LAUNCHES": "\n".join(_launches(recipe)),
        "INPUT_BITS": _BITS[recipe["operands"]["a"]["dtype"]],
        "OUTPUT_BITS": _BITS[recipe["operands"]["c"]["dtype"]],
    }
    text = _template()
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    return text


def _memory(recipe: Values) -> Iterator[str]:
    for name, values in recipe["operands"].items():
        rows, columns = values["shape"]
        row, column = values["element_strides"]
        past = values["address_modulo_16"]
        yield (
            f"  const CUdeviceptr at_{name} = allocate({values['bytes'] + 16}, 0xFF) + {past};"
            "  // cuMemAlloc's own is aligned"
        )
        yield (
            f"  const Matrix matrix_{name}{{{rows}, {columns}, {row}, {column}, "
            f"{values['element_bytes']}, {values['bytes']}, at_{name}}};"
        )
    for buffer in recipe["buffers"]:
        fill = "0" if buffer["initial"] == "zero" else "0xFF"
        yield (
            f"  const CUdeviceptr at_{buffer['name']} = allocate({buffer['bytes']}, {fill});"
            f"  // {buffer['use']}"
        )


def _launches(recipe: Values) -> Iterator[str]:
    for launch in recipe["launches"]:
        cubin = recipe["modules"][launch["module"]]["cubins"][recipe["arch"]]
        yield f"  {{  // {launch['entry']}"
        yield "    CUmodule module;"
        yield "    CUfunction function;"
        yield f'    CHECK(cuModuleLoad(&module, (folder + "/{cubin}").c_str()));'
        yield f'    CHECK(cuModuleGetFunction(&function, module, "{launch["entry"]}"));'
        for name, value in launch["function_attributes"].items():
            yield f"    CHECK(cuFuncSetAttribute(function, {name}, {value}));"
        for number, parameter in enumerate(launch["parameters"]):
            yield from _parameter(number, parameter)
        yield from _attributes(launch["launch_attributes"])
        names = ", ".join(
            f"{'' if p['kind'] == 'block' else '&'}parameter{i}"
            for i, p in enumerate(launch["parameters"])
        )
        yield f"    void* parameters[] = {{{names}}};"
        yield "    CUlaunchConfig config{};"
        for axis, grid, block in zip("XYZ", launch["grid"], launch["block"], strict=True):
            yield f"    config.gridDim{axis} = {grid};"
            yield f"    config.blockDim{axis} = {block};"
        yield f"    config.sharedMemBytes = {launch['dynamic_smem_bytes']};"
        yield "    config.hStream = stream;"
        if launch["launch_attributes"]:
            yield "    config.attrs = attributes;"
            yield f"    config.numAttrs = {len(launch['launch_attributes'])};"
        yield "    CHECK(cuLaunchKernelEx(&config, function, parameters, nullptr));"
        yield "  }"


def _parameter(number: int, parameter: Values) -> Iterator[str]:
    if parameter["kind"] == "tensor_map":
        dims, strides, box = (
            "{" + ", ".join(map(str, parameter[name])) + "}"
            for name in ("dims", "strides_bytes", "box")
        )
        yield f"    CUtensorMap parameter{number} = encode("
        yield (
            f"        {parameter['data_type']}, at_{parameter['base']}, {dims}, {strides}, {box},"
        )
        yield f"        {parameter['interleave']}, {parameter['swizzle']},"
        yield f"        {parameter['l2_promotion']}, {parameter['oob_fill']});"
        return
    yield f"    alignas(16) unsigned char parameter{number}[{parameter['bytes']}] = {{}};"
    for field in parameter["fields"]:
        value = f"at_{field['address_of']}" if "address_of" in field else field["value"]
        note = f": {field['note']}" if "note" in field else ""
        yield (
            f"    put<{_TYPES[field['type']]}>(parameter{number}, {field['offset']}, {value});"
            f"  // {field['name']}{note}"
        )


def _attributes(attributes: Values) -> Iterator[str]:
    if not attributes:
        return
    yield f"    CUlaunchAttribute attributes[{len(attributes)}] = {{}};"
    for number, (name, value) in enumerate(attributes.items()):
        of = f"attributes[{number}]"
        yield f"    {of}.id = {name};"
        if name == _CLUSTER:
            for axis, size in zip("xyz", value, strict=True):
                yield f"    {of}.value.clusterDim.{axis} = {size};"
        else:
            yield f"    {of}.value.programmaticStreamSerializationAllowed = {value};"
