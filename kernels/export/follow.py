"""Makes a launch of an export, and holds its product against numpy's.

    python follow.py [FOLDER]             needs a Hopper GPU, CuPy, cuda-bindings and numpy
    python follow.py [FOLDER] --print     needs no GPU: prints what launches would be given

It knows nothing of the kernel but what FOLDER/recipe.json says, and needs nothing of Warpwright:
it may be copied, read as an example, and changed. Apache-2.0.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

FORMATS = ("warpwright-launch-1",)
CODES = {"u64": "<Q", "i64": "<q", "i32": "<i", "f32": "<f"}
ROWS_CHECKED = 256
NONZEROS = 256  # of a row of A: sums of so many signs are whole numbers that bf16 holds


def block_bytes(parameter: dict[str, Any], addresses: dict[str, int]) -> bytes:
    """A parameter that is passed by value, for these device addresses."""
    block = bytearray(parameter["bytes"])
    for field in parameter["fields"]:
        value = addresses[field["address_of"]] if "address_of" in field else field["value"]
        struct.pack_into(CODES[field["type"]], block, field["offset"], value)
    return bytes(block)


def map_arguments(parameter: dict[str, Any], addresses: dict[str, int]) -> tuple[Any, ...]:
    """The arguments of cuTensorMapEncodeTiled, as the driver API names and orders them."""
    return (
        getattr(driver.CUtensorMapDataType, parameter["data_type"]),
        parameter["rank"],
        addresses[parameter["base"]],
        [driver.cuuint64_t(x) for x in parameter["dims"]],
        [driver.cuuint64_t(x) for x in parameter["strides_bytes"]],
        [driver.cuuint32_t(x) for x in parameter["box"]],
        [driver.cuuint32_t(x) for x in parameter["element_strides"]],
        getattr(driver.CUtensorMapInterleave, parameter["interleave"]),
        getattr(driver.CUtensorMapSwizzle, parameter["swizzle"]),
        getattr(driver.CUtensorMapL2promotion, parameter["l2_promotion"]),
        getattr(driver.CUtensorMapFloatOOBfill, parameter["oob_fill"]),
    )


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call, or an exit that names the error."""
    if int(result[0]):
        sys.exit(f"the driver: {driver.CUresult(result[0]).name}")
    return result[1] if len(result) == 2 else None


def parameter_bytes(parameter: dict[str, Any], addresses: dict[str, int]) -> bytes:
    """What the kernel gets for one of its parameters."""
    if parameter["kind"] == "block":
        return block_bytes(parameter, addresses)
    encoded = checked(driver.cuTensorMapEncodeTiled(*map_arguments(parameter, addresses)))
    return ctypes.string_at(int(encoded.getPtr()), parameter["bytes"])


class Launch:
    """One of the recipe's launches, ready for any stream."""

    def __init__(
        self, launch: dict[str, Any], modules: dict[str, Any], addresses: dict[str, int]
    ) -> None:
        module = modules[launch["module"]]
        self.function = checked(driver.cuModuleGetFunction(module, launch["entry"].encode()))
        for name, value in launch["function_attributes"].items():
            checked(
                driver.cuFuncSetAttribute(
                    self.function, getattr(driver.CUfunction_attribute, name), value
                )
            )
        self.held = [
            np.frombuffer(parameter_bytes(p, addresses), np.uint8) for p in launch["parameters"]
        ]
        self.pointers = (ctypes.c_void_p * len(self.held))(*(x.ctypes.data for x in self.held))
        config = self.config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch["grid"]
        config.blockDimX, config.blockDimY, config.blockDimZ = launch["block"]
        config.sharedMemBytes = launch["dynamic_smem_bytes"]
        attributes = []
        for name, value in launch["launch_attributes"].items():
            attribute = driver.CUlaunchAttribute()
            attribute.id = getattr(driver.CUlaunchAttributeID, name)
            if name == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION":
                shape = attribute.value.clusterDim
                shape.x, shape.y, shape.z = value
            else:
                attribute.value.programmaticStreamSerializationAllowed = value
            attributes.append(attribute)
        config.attrs, config.numAttrs = attributes, len(attributes)

    def enqueue(self, stream: int) -> None:
        """Enqueue it on the stream of this handle."""
        self.config.hStream = driver.CUstream(stream)
        checked(
            driver.cuLaunchKernelEx(self.config, self.function, ctypes.addressof(self.pointers), 0)
        )


def load_modules(folder: Path, recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe's cubins in the current context, by the names that launches know them by."""
    loaded = {}
    for name, module in recipe["modules"].items():
        file = module["cubins"][recipe["arch"]]
        try:
            content = (folder / file).read_bytes()
        except OSError as error:
            sys.exit(f"{folder / file} can't be read: {error.strerror}")
        if hashlib.sha256(content).hexdigest() != module["sha256"][file]:
            sys.exit(f"{folder / file} is not the recipe's: its SHA-256 is another")
        image = np.frombuffer(content, np.uint8)
        loaded[name] = checked(driver.cuModuleLoadData(image.ctypes.data))
    return loaded


def operand(cp: Any, values: dict[str, Any]) -> tuple[Any, Any]:
    """Memory for an operand where the recipe wants it: (all of it as bytes, the matrix's view).

    Elements are bits: uint16, or uint32 for fp32.
    """
    bits = np.uint32 if values["element_bytes"] == 4 else np.uint16
    memory = cp.full(values["bytes"] + 32, 0xFF, np.uint8)  # NaN in every type
    first = (values["address_modulo_16"] - memory.data.ptr) % 16
    inside = memory[first : first + values["bytes"]].view(bits)
    strides = [x * values["element_bytes"] for x in values["element_strides"]]
    view = cp.lib.stride_tricks.as_strided(inside, values["shape"], strides)
    return memory, view


def bits_of(values: Any, dtype: str) -> Any:
    """Whole numbers of at most 256 as the bits of a type, exactly."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    words = values.astype(np.float32).view(np.uint32)
    return words if dtype == "fp32" else (words >> 16).astype(np.uint16)


def without_minus_zero(bits: Any) -> Any:
    """The bits with -0 turned into +0, which it equals."""
    minus = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits == minus, bits.dtype.type(0), bits)


def factors(recipe: dict[str, Any], seed: int) -> tuple[Any, Any]:
    """A and B of small whole numbers whose products every type of C holds exactly."""
    random = np.random.default_rng(seed)
    (m, k), (_, n) = (recipe["operands"][name]["shape"] for name in "ab")
    a = random.integers(0, 2, (m, k), dtype=np.int8) * 2 - 1
    if k > NONZEROS:
        for first in range(0, m, NONZEROS):
            rows = a[first : first + NONZEROS]
            a[first : first + NONZEROS] *= random.random(rows.shape, np.float32) * k < NONZEROS / 2
    return a, random.integers(-1, 2, (k, n), dtype=np.int8)


def run(folder: Path, recipe: dict[str, Any]) -> dict[str, Any]:
    """Make the launches twice, with other numbers each time; what was found."""
    import cupy as cp

    try:
        cp.cuda.runtime.free(0)  # makes a context
    except cp.cuda.runtime.CUDARuntimeError as error:
        sys.exit(f"no GPU can be used: {error}; --print shows without one what would be launched")
    stream = cp.cuda.Stream(non_blocking=True)
    wrong = checked_elements = 0
    with stream:
        memory, views, addresses = {}, {}, {}
        for name, values in recipe["operands"].items():
            memory[name], views[name] = operand(cp, values)
            addresses[name] = views[name].data.ptr
        for buffer in recipe["buffers"]:
            fill = 0 if buffer["initial"] == "zero" else 0xFF
            memory[buffer["name"]] = cp.full(buffer["bytes"], fill, np.uint8)
            addresses[buffer["name"]] = memory[buffer["name"]].data.ptr
            if addresses[buffer["name"]] % buffer["alignment"]:
                sys.exit(f"{buffer['name']} is not aligned to {buffer['alignment']} bytes")
        modules = load_modules(folder, recipe)
        launches = [Launch(launch, modules, addresses) for launch in recipe["launches"]]
        for seed in (1, 2):
            a, b = factors(recipe, seed)
            for name, values in (("a", a), ("b", b)):
                bits = bits_of(values, recipe["operands"][name]["dtype"])
                views[name][...] = cp.asarray(bits)
            views["c"][...] = views["c"].dtype.type(~views["c"].dtype.type(0))
            for launch in launches:
                launch.enqueue(stream.ptr)
            got = without_minus_zero(cp.asnumpy(views["c"]))
            rows = np.linspace(0, len(a) - 1, min(len(a), ROWS_CHECKED)).astype(int)
            product = a[rows].astype(np.float32) @ b.astype(np.float32)
            wanted = without_minus_zero(bits_of(product, recipe["operands"]["c"]["dtype"]))
            wrong += int((got[rows] != wanted).sum())
            checked_elements += wanted.size
    for buffer in recipe["buffers"]:
        if buffer["initial"] == "zero" and bool(memory[buffer["name"]].any()):
            sys.exit(f"{buffer['name']} is not zero after the launch")
    return {
        "kernel": recipe["kernel"],
        "gpu": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "elements": checked_elements,
        "wrong": wrong,
    }


def printed(recipe: dict[str, Any]) -> dict[str, Any]:
    """What launches would be given for made-up addresses, the blocks as hexadecimal bytes."""
    addresses: dict[str, int] = {}
    for number, name in enumerate([*recipe["operands"], *(b["name"] for b in recipe["buffers"])]):
        past = recipe["operands"].get(name, {}).get("address_modulo_16", 0)
        addresses[name] = (number + 1 << 40) + past
    launches = []
    for launch in recipe["launches"]:
        given: list[Any] = []
        for parameter in launch["parameters"]:
            if parameter["kind"] == "block":
                given.append(block_bytes(parameter, addresses).hex())
            else:
                given.append([_plain(x) for x in map_arguments(parameter, addresses)])
        launches.append({**launch, "parameters": given})
    return {"addresses": addresses, "launches": launches}


def _plain(value: Any) -> Any:
    return [int(x) for x in value] if isinstance(value, list) else int(value)


def read_recipe(file: Path) -> dict[str, Any]:
    """The recipe in a file, or an exit that says why there is none."""
    try:
        recipe = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{file} can't be read as a recipe: {error}")
    found = recipe.get("format") if isinstance(recipe, dict) else None
    if found not in FORMATS:
        sys.exit(f"{file} has the format {found!r}; this knows {', '.join(FORMATS)}")
    return dict(recipe)


def main() -> int:
    """Run the command; 0 where every element is right."""
    parser = argparse.ArgumentParser(description="Make the launch of an export.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--print", action="store_true", help="launch nothing, print what would be")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.folder / "recipe.json")
    if arguments.print:
        print(json.dumps(printed(recipe)))
        return 0
    found = run(arguments.folder, recipe)
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
