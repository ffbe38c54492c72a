"""Strategies, ranks and their options of Megatron-LM's arguments."""
from __future__ import annotations

from typing import List

from .fsdp import derive_fsdp
from .megatron_keys import FINDS_RANKS
from .messages import as_text
from .stored import StoredValues
from .target import MOST_RANKS, Strategy, Target

_TENSOR, _PIPELINE = "tensor-model-parallel-size", "pipeline-model-parallel-size"
_CONTEXT, _EXPERTS = "context-parallel-size", "expert-model-parallel-size"
_OF_FSDP = ("use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp")
_SHARDING = {"no_shard": "ddp", "optim": "zero2", "optim_grads": "zero2", "optim_grads_params": "zero3-offload"}


class Parallelism:
    """Strategies with their options, and ranks where the command of the script states them."""

    def __init__(self, values: StoredValues) -> None:
        self.values = values
        self.target: Target = values.target

    def read(self) -> None:
        """Reads all but the pipeline's stages. Raises UsageError for what is not done here."""
        values, target = self.values, self.target
        tensor, context, pipeline = self._size(_TENSOR), self._size(_CONTEXT), self._size(_PIPELINE)
        groups = self._read_experts(self._size(_EXPERTS), tensor)
        if groups > 1 and context > 1 and groups % context == 0:  # ranks of experts are those of context, then of data
            groups //= context
            target.derive_plugin(_EXPERTS, "cp", "experts", "divided")
        every: List[Strategy] = [(name, size) for name, size in (("tp-sp", tensor), ("cp", context), ("ep", groups))
                                 if size > 1]
        data = self._data_strategy()
        every.append((data, 0))
        if pipeline > 1:
            every.append(("pipeline", pipeline))
        target.state_strategies("arguments", every)
        values.note(f"--strategy {target.value('strategy')}", _TENSOR, _PIPELINE, _CONTEXT, _EXPERTS,
                    "use-distributed-optimizer")
        if tensor > 1:
            values.state_plugin("sequence-parallel", "tp-sp", "sequence-parallel",
                                "true" if values.truth("sequence-parallel") else "false")
        else:
            values.note(f"no effect: {_TENSOR} is 1", "sequence-parallel")
        self._read_context(context)
        self._read_ranks()
        self._read_data(data)
        self._read_offload(data)

    def _size(self, name: str) -> int:
        return self.values.whole(name, 1, 1, MOST_RANKS)

    def _read_experts(self, experts: int, tensor: int) -> int:
        """The ranks of ep.

        Megatron's ranks of experts are some of those of tensor and data parallelism; matrices of an expert are divided
        over expert-tensor-parallel-size ranks, those of tensor parallelism unless it says otherwise.
        """
        values, name = self.values, "expert-tensor-parallel-size"
        if tensor == 1 or not values.has("num-experts"):
            if values.has("num-experts") and self._size(name) != 1:
                values.refuse(name, f"is {self._size(name)}, but {_TENSOR} is 1")
            values.note("no effect: nothing divides experts over ranks of tp-sp", name)
            return experts
        matrices = values.whole(name, tensor, 1, MOST_RANKS)
        beside = f" beside {_TENSOR} {tensor}"
        if matrices not in (1, tensor):
            values.refuse(name, f"is {matrices}{beside}; it may be 1 or as many")
        if matrices == 1 and experts > 1 and experts % tensor:
            values.refuse(_EXPERTS, f"is {experts}{beside}: it must be a multiple of that here, where ranks of tp-sp "
                                    "share experts all or not at all")
        whole = matrices == experts == 1
        self.target.derive_plugin(name, "tp-sp", "experts", "whole" if whole else "divided")
        values.note("--tp-sp.experts whole" if whole else "ranks of tp-sp share experts" if matrices == 1 else
                    "ranks of tp-sp share experts instead of matrices of each expert: the same memory", name)
        return experts // tensor if matrices == 1 and not whole else experts

    def _is_megatron_fsdp(self) -> bool:
        return self.values.truth("use-megatron-fsdp") or self.values.truth("use-custom-fsdp")

    def _data_strategy(self) -> str:
        """The strategy that divides parameters, gradients and states."""
        if self.values.truth("use-torch-fsdp2"):
            return "zero3-offload"
        if self._is_megatron_fsdp():
            return _SHARDING[self.values.choice("data-parallel-sharding-strategy", "no_shard", list(_SHARDING))]
        return "zero2" if self.values.truth("use-distributed-optimizer") else "ddp"

    def _read_data(self, data: str) -> None:
        values, fsdp = self.values, self._is_megatron_fsdp()
        values.note(f"--strategy {data}", *_OF_FSDP)
        values.note(f"--strategy {data}" if fsdp else "no effect: it concerns Megatron's FSDP",
                    "data-parallel-sharding-strategy")
        overlaps = values.truth("overlap-grad-reduce")
        if data == "zero2":
            gradients = fsdp and values.text("data-parallel-sharding-strategy", "") == "optim_grads"
            self.target.derive_plugin("use-distributed-optimizer", "zero2", "stage", "2" if gradients else "1")
            values.state_plugin("overlap-grad-reduce", "zero2", "overlap-comm", "true" if overlaps or fsdp else "false")
            values.note("gathers and reductions run beside computation together: --zero2.overlap-comm, as "
                        "overlap-grad-reduce says", "overlap-param-gather")
            return
        values.note("reductions of gradients run beside backward in any case", "overlap-grad-reduce")
        values.note("no effect: nothing is gathered" if data == "ddp" else
                    "gathers run beside computation in any case", "overlap-param-gather")
        if data == "zero3-offload":
            derive_fsdp(self.target, offload=False, whole_until_backward=False,
                        reduce_dtype="bf16" if values.truth("grad-reduce-in-bf16") else "fp32")

    def _read_offload(self, data: str) -> None:
        values, name, fraction = self.values, "optimizer-cpu-offload", "optimizer-offload-fraction"
        if not values.truth(name):
            values.note("off", name, fraction)
            return
        if data == "ddp":
            values.refuse(name, "is given, which needs use-distributed-optimizer")
        values.state_plugin(name, data, "offload-optimizer.device", "cpu")
        values.state_plugin(fraction, data, "offload-optimizer.ratio", as_text(values.number(fraction, 1.0)))
        self.target.derive_plugin(name, data, "offload-optimizer.update", "cpu")

    def _read_context(self, context: int) -> None:
        name = "cp-comm-type"
        ways = {"p2p": "ring", "all_gather": "gather", "a2a": "ulysses"}
        if context == 1:
            self.values.note("no effect: the sequence is not divided", name)
        else:
            self.values.state_plugin(name, "cp", "attention", ways[self.values.choice(name, "p2p", list(ways))])

    def _read_ranks(self) -> None:
        values, target = self.values, self.target
        if not values.has("nproc-per-node"):
            values.note(FINDS_RANKS, "nnodes")
            target.differs(f"says no number of ranks: --ranks {target.value('ranks')}")
            return
        ranks = self._size("nproc-per-node") * self._size("nnodes")
        if ranks > MOST_RANKS:
            values.refuse("nproc-per-node", f"makes {ranks} ranks; the most are {MOST_RANKS}")
        values.state("nproc-per-node", "ranks", ranks)
        values.note(f"--ranks {target.value('ranks')}", "nnodes")

    def read_stages(self) -> None:
        """Reads the pipeline's schedule, which needs the model's layers."""
        values, target, ranks = self.values, self.target, self._size(_PIPELINE)
        of_stage, of_rank = "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"
        if ranks == 1:
            values.note("no effect: there is no pipeline", of_stage, of_rank)
            return
        chunks = values.whole(of_rank, 1, 1, 1000)
        if values.has(of_stage):
            layers, each = target.sizes(of_stage).layers, values.whole(of_stage, 1, 1, 100_000)
            if layers % (ranks * each):
                values.refuse(of_stage, f"is {each}, which does not divide the {layers} layers over {ranks} ranks")
            chunks = layers // (ranks * each)
        values.note(f"{chunks} stages per rank", of_stage, of_rank)
        target.derive_plugin("the pipeline", "pipeline", "schedule", "interleaved" if chunks > 1 else "1f1b")
        if chunks > 1:
            target.derive_plugin("the pipeline", "pipeline", "chunks", str(chunks))
