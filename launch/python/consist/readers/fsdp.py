"""PyTorch's FSDP as the strategy zero3-offload, for the files of trainers that use it."""
from __future__ import annotations

from .target import Target

_WITHOUT_LIMIT = "1000000000000000"  # elements; more than any machine has


def derive_fsdp(target: Target, *, offload: bool, whole_until_backward: bool, reduce_dtype: str) -> None:
    """Sets the options of zero3-offload, with a line for each.

    `offload`: parameters and states lie on the host, where they are updated. `whole_until_backward`: parameters are not
    given up after forward (SHARD_GRAD_OP). `reduce_dtype` of gradients on their way: "fp32", "bf16".
    """

    def derive(origin: str, option: str, text: str) -> None:
        target.derive_plugin(origin, "zero3-offload", option, text)

    device = "cpu" if offload else "none"
    derive("offload", "offload-param.device", device)
    derive("offload", "offload-optimizer.device", device)
    if offload:
        derive("offload", "offload-optimizer.update", "cpu")
    derive("dtype of reductions", "communication-data-type", reduce_dtype)
    if whole_until_backward:
        derive("no resharding after forward", "max-live-parameters", _WITHOUT_LIMIT)
    derive("no resharding after forward" if whole_until_backward else "resharding after forward", "max-reuse-distance",
           _WITHOUT_LIMIT if whole_until_backward else "0")
