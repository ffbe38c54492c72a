"""Degrees of parallelism and batches of torchtitan's configurations."""
from __future__ import annotations

from typing import List

from .fsdp import derive_fsdp
from .messages import in_quotes
from .stored import StoredValues
from .target import MOST_RANKS, Strategy, Target

_OF_DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
               "expert_parallel_degree", "expert_tensor_parallel_degree", "data_parallel_replicate_degree",
               "data_parallel_shard_degree")
_OF_PIPELINE = ("pipeline_parallel_schedule", "pipeline_parallel_layers_per_stage", "pipeline_parallel_microbatch_size",
                "pipeline_parallel_microbatches", "pipeline_parallel_first_stage_less_layers",
                "pipeline_parallel_last_stage_less_layers")


class Parallelism:
    """Strategies with their options, ranks where the degrees state them, and batches."""

    edge = 1  # layers that the embedding counts as, and the LM head
    local_batch = 8  # where the file says none

    def __init__(self, values: StoredValues, old: bool) -> None:
        self.values = values
        self.old = old  # the layout before [parallelism]
        self.target: Target = values.target

    def read(self) -> None:
        """Reads all of it. Raises UsageError for what is not done here."""
        self.tensor = self._degree("tensor_parallel_degree")
        self.pipeline = self._degree("pipeline_parallel_degree")
        self.context = self._degree("context_parallel_degree")
        self.experts = self._degree("expert_parallel_degree")
        self.replicas = self._degree("data_parallel_replicate_degree")
        self.shards = self.values.whole("data_parallel_shard_degree", -1, -1, MOST_RANKS)
        if self.shards == 0:
            self.values.refuse("data_parallel_shard_degree",
                               "is 0; it must be a number of ranks, or -1 for those that are left")
        if self.experts > 1 and self.tensor > 1:
            self._read_experts_beside_tensor()
        if self.experts > 1 and self.context > 1:
            self._fold_experts_over_context()
        self._state_strategies()
        self._state_ranks()
        self._read_sharding()
        self._read_pipeline()
        self._read_context()
        self._read_batch()

    def _degree(self, name: str) -> int:
        return self.values.whole(name, 1, 1, MOST_RANKS)

    def _key(self, axis: str) -> str:
        """The file's key of the axis's degree."""
        return self.values.key_of(f"{axis}_degree")

    def _fold_experts_over_context(self) -> None:
        """Torchtitan's ranks of experts are those of context parallelism and some of those that divide parameters."""
        if self.experts % self.context:
            self.values.refuse("expert_parallel_degree",
                               f"is {self.experts}, which {self._key('context_parallel')} {self.context} does not "
                               "divide: ranks of cp share experts all or not at all")
        self.experts //= self.context
        self.target.derive_plugin("expert_parallel_degree", "cp", "experts", "divided")

    def _read_experts_beside_tensor(self) -> None:
        """Ranks of tp-sp share experts with those of ep.

        Torchtitan counts them among its ranks of experts unless it divides the matrices of each expert over them, which
        takes the same memory.
        """
        of_matrices = self._degree("expert_tensor_parallel_degree")
        if of_matrices == self.tensor:
            return
        if of_matrices != 1:
            self.values.refuse("expert_tensor_parallel_degree",
                               f"is {of_matrices}; it may be 1 or as {self._key('tensor_parallel')}, {self.tensor}")
        if self.experts % self.tensor:
            self.values.refuse("expert_parallel_degree",
                               f"is {self.experts}, which {self._key('tensor_parallel')} {self.tensor} does not "
                               "divide: ranks of tp-sp share experts all or not at all")
        self.experts //= self.tensor

    def _divides(self) -> bool:
        """True if parameters are sharded over ranks: over those of context parallelism in any case."""
        return self.shards != 1 or self.context > 1

    def _state_strategies(self) -> None:
        sizes = (("tp-sp", self.tensor), ("cp", self.context), ("ep", self.experts))
        every: List[Strategy] = [(name, size) for name, size in sizes if size > 1]
        if self._divides():
            # Ranks of expert parallelism are some of those that divide the other parameters.
            if self.shards > 0 and self.shards % self.experts:
                self.values.refuse("expert_parallel_degree",
                                   f"is {self.experts}, which does not divide {self._key('data_parallel_shard')} "
                                   f"{self.shards}")
            every.append(("zero3-offload", self.shards // self.experts if self.shards > 0 else 0))
            if self.replicas > 1:
                every.append(("ddp", self.replicas))
        elif self.replicas > 1 or not every:
            if self.replicas % self.experts:
                self.values.refuse("expert_parallel_degree",
                                   f"is {self.experts}, but there are {self.replicas} data-parallel ranks")
            every.append(("ddp", self.replicas // self.experts if self.pipeline == 1 or self.replicas > 1 else 1))
        if self.pipeline > 1:
            every.append(("pipeline", self.pipeline))
        self.target.state_strategies("parallelism", every)
        self.values.note(f"--strategy {self.target.value('strategy')}", *_OF_DEGREES)

    def _state_ranks(self) -> None:
        """The degrees say how many ranks there are, unless one of them takes those that are left."""
        if self.shards < 0 or self.target.given("ranks"):
            return
        ranks = self.tensor * self.pipeline * self.context * self.replicas * self.shards
        if ranks > MOST_RANKS:
            self.target.refuse("parallelism", f"has {ranks} ranks; the most are {MOST_RANKS}")
        self.target.set("ranks", ranks)
        self.target.detail(f"parallelism: --ranks {ranks}, the product of its degrees")

    def _read_sharding(self) -> None:
        offload = self.values.truth("enable_cpu_offload")
        policy = self.values.choice("fsdp_reshard_after_forward", "default", ("default", "always", "never"))
        if not self._divides():
            if offload:
                self.values.refuse("enable_cpu_offload", f"is true, which needs {self._key('data_parallel_shard')}")
            self.values.note("no effect: nothing is sharded", "enable_cpu_offload", "fsdp_reshard_after_forward")
            return
        self.values.note("--zero3-offload offload options" if offload else "off", "enable_cpu_offload")
        self.values.note("--zero3-offload.max-reuse-distance", "fsdp_reshard_after_forward")
        derive_fsdp(self.target, offload=offload, reduce_dtype="fp32",
                    whole_until_backward=policy == "never" or (policy == "default" and self.pipeline > 1))

    def _read_pipeline(self) -> None:
        values = self.values
        schedule = values.text("pipeline_parallel_schedule", "1F1B")
        if self.pipeline == 1:
            values.note("no effect: there is no pipeline", *_OF_PIPELINE)
            return
        name = schedule.lower()
        interleaved = name == "interleaved1f1b"
        if name not in ("1f1b", "gpipe", "interleaved1f1b"):
            values.refuse("pipeline_parallel_schedule",
                          f"is {in_quotes(schedule)}; here it may be 1F1B, GPipe or Interleaved1F1B; "
                          "--pipeline.schedule has more")
        values.state_plugin("pipeline_parallel_schedule", "pipeline", "schedule",
                            "interleaved" if interleaved else name)
        ends = ("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers")
        edges = sum(values.whole(end, self.edge, 0, 1000) for end in ends)
        values.note("no effect but on how many stages there are: stages are cut by the costs of their ops "
                    "(--pipeline.cut)", *ends)
        chunks = 2 if interleaved else 1
        per_stage = "pipeline_parallel_layers_per_stage"
        if values.has(per_stage):
            layers = values.whole(per_stage, 1, 1, 100_000)
            stages = self._stages(-(-(self.target.sizes(values.key_of(per_stage)).layers + edges) // layers))
            chunks = stages // self.pipeline
            if stages % self.pipeline or (chunks == 1) == interleaved:
                values.refuse(per_stage, f"makes {stages} stages over {self.pipeline} ranks, which does not go with "
                              f"the schedule {schedule}")
            values.note(f"{chunks} stages per rank", per_stage)
        if interleaved:
            self.target.derive_plugin("pipeline_parallel_schedule", "pipeline", "chunks", str(chunks))

    def _stages(self, wanted: int) -> int:
        """The stages that are made where so many are wanted."""
        return wanted

    def _read_context(self) -> None:
        name = "context_parallel_rotate_method"
        method = self.values.choice(name, "allgather", ("allgather", "alltoall"))
        if self.context > 1:
            self.values.state_plugin(name, "cp", "attention", "ring" if method == "alltoall" else "gather")
        else:
            self.values.note("no effect: the sequence is not divided", name)

    def _read_batch(self) -> None:
        """A pipeline's micro-batches are parts of the local batch."""
        values, target = self.values, self.target
        local = values.whole("local_batch_size", self.local_batch, 1, 10 ** 9)
        micro = local
        if self.pipeline > 1 and self.old:
            count = values.whole("pipeline_parallel_microbatches", self.pipeline, 1, MOST_RANKS)
            if local % count:
                values.refuse("pipeline_parallel_microbatches", f"is {count}, which does not divide the batch {local}")
            micro = local // count
        elif self.pipeline > 1:
            micro = values.whole("pipeline_parallel_microbatch_size", 1, 1, local)
        if local % micro:
            values.refuse("pipeline_parallel_microbatch_size", f"is {micro}, which does not divide the batch {local}")
        wanted = values.whole("global_batch_size", -1, -1, 10 ** 12)
        if self.pipeline > 1:
            values.note(f"--batch {micro}", "pipeline_parallel_microbatch_size", "pipeline_parallel_microbatches")
        values.state("local_batch_size", "batch", micro)
        if target.given("global-batch") or target.given("accumulation"):
            values.note("--global-batch or --accumulation is given and goes before the file", "global_batch_size")
        elif wanted > 0:
            values.state("global_batch_size", "global-batch", wanted)
        else:
            values.note("local_batch_size times the data-parallel ranks", "global_batch_size")
            target.set("accumulation", local // micro)
            target.detail(f"local_batch_size {local}: --accumulation {local // micro}")
