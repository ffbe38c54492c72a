"""Reads the YAML that `accelerate config` writes."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from .accelerate_keys import RULES, STARTS_RANKS
from .deepspeed import NO_FP16, NamedFile, state_zero, strategy_of
from .fsdp import derive_fsdp
from .messages import in_quotes
from .rules import KeyReader, drop_nulls
from .stored import StoredValues
from .target import MOST_RANKS, Strategy, Target

_TYPES = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP")
_KINDS = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_RENAMED = {"fsdp_cpu_offload": "fsdp_offload_params", "offload_params": "fsdp_offload_params",
            "sharding_strategy": "fsdp_sharding_strategy", "amax_history_length": "amax_history_len",
            "amax_compute_algorithm": "amax_compute_algo"}
# Keys of each distributed_type, without effect where another is asked for, as in Accelerate.
_OF_TYPES = {
    "FSDP": ("fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_offload_params",
             "fsdp_activation_checkpointing"),
    "DEEPSPEED": ("deepspeed_config_file", "zero_stage", "gradient_accumulation_steps", "gradient_clipping",
                  "offload_optimizer_device", "offload_param_device"),
    "MEGATRON_LM": ("megatron_lm_tp_degree", "megatron_lm_pp_degree", "megatron_lm_num_micro_batches",
                    "megatron_lm_gradient_clipping", "megatron_lm_recompute_activations",
                    "megatron_lm_sequence_parallelism", "megatron_lm_use_distributed_optimizer"),
}
_OF_FP8 = ("backend", "fp8_format", "amax_history_len", "amax_compute_algo")
_OF_SIZES = ("parallelism_config_cp_size", "parallelism_config_sp_size", "parallelism_config_tp_size",
             "parallelism_config_dp_shard_size", "parallelism_config_dp_replicate_size", "megatron_lm_tp_degree",
             "megatron_lm_pp_degree")


def is_config(root: Dict[str, Any]) -> bool:
    """True for what `accelerate config` writes."""
    return "distributed_type" in root or "compute_environment" in root


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the file states; absent keys have Accelerate's defaults."""
    _Reader(target).run(root)


class _Reader(KeyReader):
    def __init__(self, target: Target) -> None:
        super().__init__(target, RULES)
        self.values = StoredValues(target)
        self.kind = ""  # distributed_type
        self.machines = 1

    def run(self, root: Dict[str, Any]) -> None:
        drop_nulls(root, self.target)
        self.read_all(root, self._read_type)
        self.run_steps(self._read_processes, self._read_training)
        self._note_other_blocks()

    def read_own(self, key: str, value: Any) -> None:
        name = key.rpartition(".")[2]
        self.values.add(_RENAMED.get(name, name), key, value)

    def _upper(self, name: str, fallback: str) -> str:
        """The value of a key, else `fallback`, in upper case; "NO" for the truth value false."""
        given = self.values.find(name)
        if given and given.value is False:
            return "NO"
        if given and isinstance(given.value, int) and not isinstance(given.value, bool):
            return str(given.value)
        return self.values.text(name, fallback).upper()

    def _size(self, name: str) -> int:
        return self.values.whole(name, 1, 1, MOST_RANKS)

    def _read_type(self) -> None:
        self.kind = self._upper("distributed_type", "NO")
        if self.kind not in _TYPES:
            self.values.refuse("distributed_type", f"is {in_quotes(self.kind)}, for devices or trainers that are not "
                               "there; it may be NO, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED or MEGATRON_LM")
        self.values.note("--strategy", "distributed_type")

    def _read_processes(self) -> None:
        values, target = self.values, self.target
        self.machines = self._size("num_machines")
        values.note(STARTS_RANKS, "num_machines")
        if self.kind == "NO":
            values.note("no effect: distributed_type is NO, so there is one", "num_processes")
            if not target.given("ranks"):
                target.options["ranks"] = "1"
        elif values.has("num_processes"):
            values.state("num_processes", "ranks", self._size("num_processes"))
        if values.truth("use_cpu"):
            values.state("use_cpu", "device", "cpu")
        else:
            values.note(f"--device {target.value('device')}", "use_cpu")

    def _read_training(self) -> None:
        if self.kind == "DEEPSPEED":
            self._read_deepspeed()
        else:
            self._read_precision()
            self._read_strategies()

    def _read_precision(self) -> None:
        values = self.values
        name = self._upper("mixed_precision", "NO").lower()
        if name == "fp16":
            self._refuse_fp16()
        if name not in ("no", "bf16", "fp8"):
            values.refuse("mixed_precision", f"is {in_quotes(name)}; it may be no, bf16 or fp8")
        values.state("mixed_precision", "precision", "fp32" if name == "no" else name)
        if self.target.value("precision") == name == "fp8":
            self._read_fp8()

    def _read_fp8(self) -> None:
        values = self.values
        backend = self._upper("backend", "TE")
        if backend not in ("TE", "AO"):
            values.refuse("backend", f"is {in_quotes(backend)}; here it may be TE or AO")
        values.state_plugin("backend", "fp8", "scaling", "delayed" if backend == "TE" else "tensor")
        if backend != "TE":
            values.note(f"no effect: the backend is {backend}", "fp8_format", "amax_history_len", "amax_compute_algo")
            return
        form = self._upper("fp8_format", "HYBRID")
        if form not in ("HYBRID", "E4M3"):
            values.refuse("fp8_format", f"is {in_quotes(form)}; here it may be HYBRID or E4M3")
        values.state_plugin("fp8_format", "fp8", "gradient-format", "e5m2" if form == "HYBRID" else "e4m3")
        latest = self._upper("amax_compute_algo", "MOST_RECENT") == "MOST_RECENT"
        values.note("--fp8.amax-history-len, whose largest decides", "amax_compute_algo")
        length = 1 if latest else values.whole("amax_history_len", 1024, 1, 10 ** 6)
        values.state_plugin("amax_history_len", "fp8", "amax-history-len", str(length))

    def _read_strategies(self) -> None:
        values, target = self.values, self.target
        context, ulysses = self._size("parallelism_config_cp_size"), self._size("parallelism_config_sp_size")
        if context > 1 and ulysses > 1:
            values.refuse("parallelism_config_sp_size",
                          "is given beside parallelism_config_cp_size; a sequence is divided in one way here")
        megatron = self.kind == "MEGATRON_LM"
        tensor = self._size("megatron_lm_tp_degree" if megatron else "parallelism_config_tp_size")
        every: List[Strategy] = [("tp-sp", tensor)] if tensor > 1 else []
        way = "parallelism_config_cp_comm_strategy"
        if context * ulysses > 1:
            every.append(("cp", context * ulysses))
            said = values.choice(way, "allgather", ("allgather",))
            target.derive_plugin("parallelism_config", "cp", "attention", "ulysses" if ulysses > 1 else "gather")
            values.note(f"--cp.attention gather ({said})", way)
        else:
            values.note("no effect: the sequence is not divided", way)
        every += self._data_parallel(context * ulysses * tensor)
        pipeline = self._size("megatron_lm_pp_degree") if megatron else 1
        if pipeline > 1:
            every.append(("pipeline", pipeline))
        target.state_strategies(f"distributed_type {self.kind}", every)
        values.note(f"--strategy {target.value('strategy')}", *_OF_SIZES)
        if self.kind == "FSDP":
            self._read_recompute("fsdp_activation_checkpointing")
        if megatron:
            self._read_megatron()

    def _data_parallel(self, within: int) -> List[Strategy]:
        """The strategies over ranks with sequences of their own. `within`: ranks that train on the same sequences."""
        values = self.values
        if self.kind == "MEGATRON_LM":
            name = "megatron_lm_use_distributed_optimizer"
            divides = values.truth(name)
            if divides:
                self.target.derive_plugin(name, "zero2", "stage", "1")
            return [("zero2" if divides else "ddp", 0)]
        of_shards, of_replicas = "parallelism_config_dp_shard_size", "parallelism_config_dp_replicate_size"
        has_degrees = values.has(of_shards) or values.has(of_replicas)
        shards, replicas = self._size(of_shards), self._size(of_replicas)
        if self.kind != "FSDP":
            if shards > 1:
                values.refuse(of_shards, f"is {shards}, which needs distributed_type FSDP")
            return [("ddp", replicas if has_degrees else 0)]
        kind = self._sharding()
        if kind == "NO_SHARD":
            return [("ddp", 0)]
        every: List[Strategy] = [("zero3-offload", 0)]
        if has_degrees:
            every = [("zero3-offload", shards)] + ([("ddp", replicas)] if replicas > 1 else [])
        elif kind.startswith("HYBRID") and self.machines > 1:
            ranks = int(self.target.value("ranks"))
            if ranks % (self.machines * within):
                values.refuse("num_machines", f"is {self.machines}, over which the {ranks} ranks cannot be divided")
            every = [("zero3-offload", ranks // (self.machines * within)), ("ddp", self.machines)]
        offload = values.truth("fsdp_offload_params")
        values.note("--zero3-offload offload options" if offload else "off", "fsdp_offload_params")
        derive_fsdp(self.target, offload=offload,
                    whole_until_backward=kind == "SHARD_GRAD_OP" or kind.endswith("ZERO2"),
                    reduce_dtype="fp32" if self.target.value("precision") == "fp32" else "bf16")
        return every

    def _sharding(self) -> str:
        """FSDP 1's sharding_strategy, by name or number, or what FSDP 2's reshard_after_forward amounts to.

        Files of version 1 may have the name under the newer key.
        """
        values = self.values
        old, new = "fsdp_sharding_strategy", "fsdp_reshard_after_forward"
        origin, kind = old, "FULL_SHARD"
        resharding = values.find(new)
        if resharding and isinstance(resharding.value, bool):
            kind = "FULL_SHARD" if resharding.value else "SHARD_GRAD_OP"
            values.note(kind, new)
        elif resharding:
            origin, kind = new, self._upper(new, kind)
        if values.has(old):
            if origin == new:
                values.note("fsdp_sharding_strategy counts", new)
            origin, kind = old, self._upper(old, kind)
        if kind in ("1", "2", "3", "4", "5"):
            kind = _KINDS[int(kind) - 1]
        kind = {"TRUE": "FULL_SHARD", "FALSE": "SHARD_GRAD_OP"}.get(kind, kind)
        if kind not in _KINDS:
            values.refuse(origin, f"is {in_quotes(kind)}; it may be FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD "
                          "or HYBRID_SHARD_ZERO2")
        values.note("--strategy ddp" if kind == "NO_SHARD" else "--strategy zero3-offload", origin)
        return kind

    def _read_recompute(self, name: str) -> None:
        if not self.values.truth(name):
            self.values.note("off", name)
            return
        self.values.note(self.target.state_recompute("full"), name)

    def _read_megatron(self) -> None:
        values, target = self.values, self.target
        # Selective recomputation there is of attention's scores.
        values.note(f"--strategy {target.value('strategy')}", "megatron_lm_use_distributed_optimizer")
        values.note("no effect: attention keeps no scores that could be made again",
                    "megatron_lm_recompute_activations")
        sequence = values.truth("megatron_lm_sequence_parallelism")
        target.derive_plugin("megatron_lm_sequence_parallelism", "tp-sp", "sequence-parallel",
                             "true" if sequence else "false")
        values.note("--tp-sp.sequence-parallel", "megatron_lm_sequence_parallelism")
        if values.has("megatron_lm_num_micro_batches"):
            values.state("megatron_lm_num_micro_batches", "accumulation",
                         values.whole("megatron_lm_num_micro_batches", 1, 1, 65_536))
        values.state("megatron_lm_gradient_clipping", "clip", values.number("megatron_lm_gradient_clipping", 1.0))

    def _read_deepspeed(self) -> None:
        """A file of DeepSpeed's, which the program reads, or what the plugin's own keys amount to."""
        values, target = self.values, self.target
        own_keys = _OF_TYPES["DEEPSPEED"][1:]
        dtype = self._upper("mixed_precision", "NO")
        file = None
        if values.has("deepspeed_config_file"):
            for key in own_keys:
                if values.has(key):
                    values.refuse(key, "stands beside deepspeed_config_file, which Accelerate refuses, too; leave one "
                                  "of them out")
            file = NamedFile(values, "deepspeed_config_file", [os.path.dirname(target.source.path)])
        if file and file.says_dtype():
            values.note("as the file of DeepSpeed's says", "mixed_precision")
        else:
            if dtype == "FP16":
                self._refuse_fp16()
            values.state("mixed_precision", "precision", "bf16" if dtype == "BF16" else "fp32")
        if file:
            values.note("its keys follow", "deepspeed_config_file")
            file.state()
        else:
            self._read_own_deepspeed()
        self._add_ulysses(file)

    def _refuse_fp16(self) -> None:
        self.values.refuse("mixed_precision", f'is "fp16": {NO_FP16} '
                           f"({self.target.source.set_option} mixed_precision=bf16)")

    def _read_own_deepspeed(self) -> None:
        values, target = self.values, self.target
        stage = values.whole("zero_stage", 2, 0, 3)
        state_zero(target, "zero_stage", stage, self._device("offload_optimizer_device"),
                   self._device("offload_param_device"))
        values.note(f"--strategy {target.value('strategy')}", "zero_stage")
        for name in ("offload_optimizer_device", "offload_param_device"):
            values.note(f"--{target.strategies[-1][0]} offload options" if self._device(name) == "cpu" else "off", name)
        for name, option in (("gradient_accumulation_steps", "accumulation"), ("gradient_clipping", "clip")):
            if values.has(name) and values[name] == "auto":
                values.note(f"--{option} {target.value(option)}", name)
            elif name == "gradient_clipping":
                values.state(name, option, values.number(name, 0.0))
            elif values.has(name):
                values.state(name, option, values.whole(name, 1, 1, 65_536))

    def _device(self, name: str) -> str:
        return self.values.text(name, "none").lower()

    def _add_ulysses(self, file: Optional[NamedFile]) -> None:
        """DeepSpeed's sequence parallelism (ALST) beside ZeRO."""
        values, target = self.values, self.target
        for name in ("parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_dp_shard_size"):
            if self._size(name) > 1:
                values.refuse(name, "is given beside distributed_type DEEPSPEED; of these sizes it has sp_size alone")
            values.note("one rank", name)
        values.note("no effect: DeepSpeed's stage says what is divided", "parallelism_config_dp_replicate_size",
                    "parallelism_config_cp_comm_strategy")
        size = self._size("parallelism_config_sp_size")
        if size > 1:
            others = [(strategy_of(file.stage), 0)] if file else target.strategies
            target.state_strategies(f"parallelism_config_sp_size {size}", [("cp", size), *others])
            target.derive_plugin("parallelism_config_sp_size", "cp", "attention", "ulysses")
        values.note(f"--strategy {target.value('strategy')}" if size > 1 else "one rank", "parallelism_config_sp_size")

    def _note_other_blocks(self) -> None:
        for kind, names in _OF_TYPES.items():
            if kind != self.kind:
                self.values.note(f"no effect: distributed_type is {self.kind}", *names)
        if self.kind == "FSDP" and "zero3-offload" not in self.target.value("strategy"):
            self.values.note("no effect: nothing is sharded", "fsdp_offload_params")
        precision = self.target.value("precision")
        if precision != "fp8":
            self.values.note(f"no effect: --precision {precision}", *_OF_FP8)
