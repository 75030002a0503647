"""A kernel to take home, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.schemas.parts import Shape


class KernelFile(Shape):
    encoding: Literal["utf-8", "base64"]
    content: str
    sha256: str = Field(description="of the file's bytes")


class KernelExport(Shape):
    """A kernel, and with a problem the launch that multiplies it."""

    id: str
    arch: str = Field(description="what the cubin runs on")
    entry: str
    compiler: str
    options: list[str]
    source_hash: str = Field(description="of Warpwright's CUDA sources and the options")
    registers_per_thread: int
    files: dict[str, KernelFile] = Field(
        description="by name: the source as one file, the cubin; with a problem also a C++ and a "
        "Python program that make the launch, and what copies operands first"
    )
    recipe: dict[str, Any] | None = Field(
        description="the launch, parameter by parameter; written as recipe.json beside the files "
        "it is what `warpwright export` writes. null without a problem"
    )
