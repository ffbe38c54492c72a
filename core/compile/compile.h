// From a model and the chosen parts to the program of a step: the pipeline of passes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/model.h"
#include "consist/precision.h"
#include "consist/program.h"
#include "consist/strategy.h"
#include "core/compile/layout.h"
#include "core/compile/pass_manager.h"
#include "core/experts/force_routes.h"
#include "core/frozen/freeze.h"
#include "core/passes/offload_activations.h"
#include "core/passes/optimizer.h"
#include "core/passes/recompute.h"

namespace consist {

/// AdamW with its usual constants.
CONSIST_API const Optimizer& default_optimizer();

struct CompileRequest {
  const Architecture* architecture = nullptr;
  const Precision* precision = nullptr;
  std::string model_name = "the model", precision_name = "the precision";  ///< for messages: "precision 'fp8'"
  std::vector<StrategyUse> strategies;
  int ranks = 1;
  std::int64_t micro_batch = 1;  ///< sequences per rank and micro-batch
  std::int64_t sequence = 0;     ///< tokens per sequence
  int accumulation = 1;          ///< micro-batches per step
  RecomputeRequest recompute;
  OffloadRequest offload;
  FreezeRequest freeze;
  WeightBlocks frozen_weights;  ///< see core/frozen/frozen_weights.h
  std::vector<Field> fields;  ///< of the dataset (Dataset::fields())
  double room = 1;  ///< for rows of tokens at experts, as a multiple of what strategies ask for (core/experts/room_for_rows.h)
  bool pack_linears = false;  ///< see core/passes/pack_linears.h
  SharesOfRouter expert_shares = nullptr;  ///< to which tokens are forced (core/experts/force_routes.h); null: routers choose
  OptimizerUses optimizers = &default_optimizer();
  OptimizerSettings optimizer_settings;
  /// The machine that is planned for, the same on all ranks. Null: reference_machine().
  std::shared_ptr<const Machine> machine;
  /// By axis of the layout's mesh, as CostModel takes them: the same on all ranks.
  std::vector<AxisTransports> transports;
  /// Is told of every pass; may be null.
  PassObserver* observer = nullptr;
  /// False: the program is verified behind the last pass alone, for searches of many configurations. A pass that breaks it is
  /// then not named.
  bool verify_each_pass = true;
};

/// The machine that programs are planned for if none is named: an H200's node.
CONSIST_API std::shared_ptr<const Machine> reference_machine();

/// The whole step of `rank`: forward and backward of every micro-batch, reduction, clipping, updates. Verified. Inputs:
/// "ids.<m>", "targets.<m>" (i32 [micro_batch·batch_ranks, sequence]; a pipeline stage lacks those that it does not read) and
/// "optimizer_scalars"; those of CompileRequest::fields that the model asked for, likewise; metrics "loss" and "grad_norm", with
/// a loss mask "loss_count". Ranks differ only along a strategy's axis of stages (Program::stage_axis).
CONSIST_API Program compile_step(const CompileRequest& request, const Layout& layout, int rank = 0);

/// Forward only, one micro-batch: inputs "ids" and "targets", metric "loss".
CONSIST_API Program compile_evaluation(const CompileRequest& request, const Layout& layout, int rank = 0);

/// Forward only, of `tokens` tokens of each sequence beside the keys and values of those before (core/compile/with_cache.h). The
/// request's sequence is the longest that there is to be room for, its micro_batch the number of sequences on each rank; fields
/// of a dataset are not there. Throws UsageError for a model or a layout that does not allow it.
CONSIST_API Program compile_stretch(const CompileRequest& request, const Layout& layout, std::int64_t tokens, bool logits,
                                    int rank = 0);

}  // namespace consist
