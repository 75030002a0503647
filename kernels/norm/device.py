"""Which device's limits and which code hold on the GPU beside us."""

from __future__ import annotations

from kernels.errors import NoKernelFamily
from kernels.host import HostGpu, match_profile
from solver.device import DeviceProfile, device_names, load_profile
from solver.families.norm_activation_legality import runs_on


def norm_profile(gpu: HostGpu) -> DeviceProfile:
    """The profile of a GPU that this family runs on.

    Raises NoKernelFamily where no shipped profile is of it, or of one before sm_80.
    """
    name = match_profile(gpu)
    if name is not None and runs_on(profile := load_profile(name)):
        return profile
    able = [each for each in device_names() if runs_on(load_profile(each))]
    raise NoKernelFamily(
        f"norm_activation does not run on {gpu.name}; it runs on {', '.join(able)}"
    )
