// One run, fully stated: what the command line resolves to and what the archive records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/frozen/freeze.h"
#include "core/passes/offload_activations.h"
#include "core/passes/optimizer.h"
#include "core/passes/recompute.h"

namespace consist {

/// One entry of --strategy: "tp-sp=2" has size 2, "ddp" has size 0 (the remaining ranks). "zero2=2x4" has size 8, split over two
/// mesh axes; "zero2=*x4" has size 0, its outer axis gets the remaining ranks.
struct StrategyChoice {
  std::string name;
  int size = 0;
  std::vector<int> split = {};  ///< of several axes, the outermost first; 0: the remaining ranks. Empty: one axis
  bool operator==(const StrategyChoice&) const = default;
};

/// The value of --transport that leaves the choice to core/plan/transports.h.
inline constexpr const char* automatic_transport = "auto";

/// The value of --expert-load that leaves routers alone.
inline constexpr const char* natural_experts = "natural";

/// --adapter of a run that trains the model itself.
inline constexpr const char* no_adapter = "none";
/// --loss of a run that trains on the next token's cross-entropy, as models make it.
inline constexpr const char* next_token = "next-token";

struct RunConfig {
  std::string model;  ///< a preset or a Hugging Face folder
  std::vector<StrategyChoice> strategies{{"ddp", 0}};
  std::string transport = automatic_transport;      ///< of every axis that `transport_of` does not name
  std::map<std::string, std::string> transport_of;  ///< by strategy or mesh axis: a name, or automatic_transport
  /// The transports that a run chose for automatic_transport, as parse_transports() reads them; empty: none was left to choose.
  std::string chosen_transport;
  std::string precision = "fp32";
  std::string device = "auto";
  std::string machine;  ///< that is planned for, as parse_machine() takes it; empty: that of rank 0's device
  std::string dataset = "text";
  /// By plugin name, then option name; only what was given on the command line.
  std::map<std::string, std::map<std::string, std::string>> plugin_options;
  /// Options that the device has settled by measuring (Device::choose_options), by plugin name, then option name.
  std::map<std::string, std::map<std::string, std::string>> chosen_options;

  int ranks = 1;
  std::int64_t batch = 4;  ///< sequences per rank and micro-batch; 0: follows from global_batch
  std::int64_t sequence = 512;
  int accumulation = 1;  ///< micro-batches per step; 0: follows from global_batch
  std::int64_t global_batch =
      0;  ///< sequences per step of all ranks; 0: follows from the two (settle_batch in core/plan/parts.h)
  RecomputeRequest recompute;
  OffloadRequest offload;  ///< --offload-activations
  FreezeRequest freeze;
  WeightBlocks frozen_weights;       ///< the form in which frozen weights of linears lie in memory
  std::string adapter = no_adapter;  ///< the plugin
  std::string loss = next_token;     ///< the plugin
  bool pack = true;  ///< linears that read the same are one product
  std::string expert_load = natural_experts;  ///< as ExpertLoad::parse() takes it (core/plan/expert_load.h)
  std::int64_t steps = 100;
  std::int64_t epochs =
      0;  ///< passes through the dataset, from which steps follow once it is open (steps_of_epochs); 0: steps count
  std::uint64_t seed = 0;
  bool from_scratch = false;  ///< initialise even if the model folder has weights

  double learning_rate = 3e-4;             ///< the schedule's peak
  std::string schedule = "constant";       ///< the plugin
  std::string optimizer_plugin = "adamw";  ///< --optimizer
  OptimizerSettings optimizer;

  std::int64_t evaluate_every = 0;
  std::int64_t evaluate_sequences = 64;
  std::int64_t sample_every = 0;    ///< steps; 0: no samples of text
  std::string sample_prompt;        ///< the text that samples go on from
  std::int64_t sample_tokens = 64;  ///< of a sample, at most
  std::string checkpoint;           ///< folder; empty: no checkpoints
  std::int64_t checkpoint_every = 0;
  bool checkpoint_each_epoch = false;  ///< also after each step that ends a pass through the dataset
  int checkpoint_keep = 2;
  bool resume = false;
  std::string archive;                 ///< file; empty: none
  bool overwrite = false;              ///< an archive that is there already may be replaced
  std::string export_folder;           ///< where trained weights go in Hugging Face's format; empty: nowhere
  bool export_merged = false;          ///< with an adapter: the model with it added, instead of the adapter alone
  std::string export_dtype = "auto";   ///< of the weights in it: see export_dtype() in core/state/export_dtype.h
  std::int64_t memory_limit = 0;       ///< bytes per rank; 0: what the device has
  std::int64_t host_memory_limit = 0;  ///< bytes that the ranks of a host may pin together; 0: what the host has available
  int timeout_seconds = 60;            ///< how long a collective may wait for a rank
  std::vector<std::string> observers;  ///< --observe
  std::string price;                   ///< of a device and hour, as Price takes it; empty: not known
  bool profile = false;
  /// No option: frozen models of the loss are of the trained one's architecture, with weights of their own, as beside a
  /// model that is made small to be proven.
  bool frozen_like_trained = false;
  std::string trace;               ///< file for a timeline of the last step; empty: none
  std::vector<std::string> notes;  ///< for people: where values come from that no option has given

  /// Throws UsageError naming the option and what is legal. Values that parts decide on (presets, sizes) are checked by them.
  CONSIST_API void check() const;
  CONSIST_API std::string to_json() const;
};

/// "tp-sp=2+pipeline=2+ddp", "tp-sp=2+zero2=2x4". Throws UsageError.
CONSIST_API std::vector<StrategyChoice> parse_strategies(const std::string& text);
CONSIST_API std::string text_of(const std::vector<StrategyChoice>& strategies);
/// "socket", "nvlink+ddp=efa" or "nvlink+data.0=efa", also with commas, into the two transport fields. Throws UsageError, also
/// for two of the same strategy or axis.
CONSIST_API void parse_transports(const std::string& text, RunConfig& config);
/// As parse_transports() reads it.
CONSIST_API std::string transports_text(const RunConfig& config);
/// "a,b". Throws UsageError for an empty name and for one that is given twice.
CONSIST_API std::vector<std::string> parse_observers(const std::string& text);

}  // namespace consist
