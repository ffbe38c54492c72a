// The parts of a run: found by name, made with their options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "consist/device.h"
#include "consist/model.h"
#include "consist/optimizer.h"
#include "consist/precision.h"
#include "consist/schedule.h"
#include "consist/strategy.h"
#include "consist/transport.h"
#include "core/compile/compile.h"
#include "core/config/run_config.h"
#include "core/plan/adapted_architecture.h"
#include "core/plan/expert_load.h"
#include "core/plan/loss_architecture.h"
#include "core/plan/mixture.h"
#include "core/plugin/host.h"

namespace consist {

struct Parts {
  std::shared_ptr<Model> model;  ///< made the architecture; kept for its code's sake
  std::string model_name;  ///< the plugin's, not the preset's
  std::shared_ptr<Architecture> architecture;
  std::shared_ptr<const Architecture> language_model;      ///< the same without --loss: what writes text
  std::shared_ptr<const LossArchitecture> loss;            ///< the architecture, where --loss makes another loss; else null
  std::shared_ptr<const AdaptedArchitecture> adapted;      ///< the language model, where --adapter has rewritten it; else null
  std::string
      adapter_folder;  ///< whose weights the adapter begins with, by its option "weights" (docs/plugins.md); empty: initial ones
  std::string model_folder;  ///< empty for a preset
  std::shared_ptr<Precision> precision;
  std::shared_ptr<Optimizer> optimizer;
  std::vector<std::shared_ptr<Optimizer>> of_rules;  ///< of --optimizer-rules, by rule; null: `optimizer`
  std::shared_ptr<Schedule> schedule;
  std::vector<std::shared_ptr<ParallelStrategy>> strategies;
  std::vector<StrategyUse> uses;  ///< point into `strategies`
  std::vector<Field> fields;      ///< of the dataset, which is not there yet when programs are made
  std::shared_ptr<const ExpertLoad> experts;  ///< --expert-load; null: routers choose as they will

  /// The unit of the loss that is trained on (Loss::unit).
  std::string loss_unit() const;
  CompileRequest compile_request(const RunConfig& config) const;
  /// The optimizer and the rules; points into the two above.
  OptimizerUses optimizers(const RunConfig& config) const;
};

/// True if the config's dataset has ids at random, so that ids can bring about a load of experts
/// (core/experts/force_routes.h).
CONSIST_API bool has_random_ids(const RunConfig& config);

/// The option --synthetic.fields for made-up values of these fields.
CONSIST_API std::string made_up_fields(const std::vector<Field>& fields);

/// The plugins for which options are given though the configuration does not contain them.
CONSIST_API std::vector<std::string> stray_owners(const RunConfig& config, PluginHost& host);

/// Makes everything but device and dataset, which cost time and memory: see make_device, open_dataset. Throws UsageError for
/// unknown names and for options of plugins that the configuration does not contain.
CONSIST_API Parts make_parts(const RunConfig& config, PluginHost& host);

/// Derives the one of batch, accumulation and global batch that is left open, so that all three are stated. Throws UsageError
/// where they do not divide.
CONSIST_API void settle_batch(RunConfig& config, const Layout& layout);

/// A device plugin and what it made.
struct NamedDevice {
  std::string name;  ///< the plugin's, after "auto" is resolved
  std::shared_ptr<Device> device;
};
/// Chooses and makes the device (not opened).
CONSIST_API NamedDevice make_device(const RunConfig& config, PluginHost& host);

/// The dataset, not opened: what it says of its tokenizer and its chat template.
CONSIST_API std::shared_ptr<Dataset> make_unopened_dataset(const Parts& parts, const RunConfig& config, PluginHost& host);

/// An open dataset.
struct RunData {
  std::shared_ptr<Dataset> dataset;
  std::shared_ptr<const Mixture> mixture;  ///< the same, where --dataset names several
};
/// Makes the dataset and opens it.
CONSIST_API RunData open_dataset(const Parts& parts, const RunConfig& config, PluginHost& host);

/// The length of a run that --epochs gives.
struct EpochSteps {
  std::int64_t steps = 0;
  std::string note;  ///< for people: how the steps come about
};
/// Counts the steps until the dataset has been read config.epochs (at least 1) times; the last one reads the last sequence of the
/// last pass. Throws UsageError for a dataset without an end.
CONSIST_API EpochSteps steps_of_epochs(const RunConfig& config, const Dataset& dataset, const Layout& layout);

/// The transports that --transport names.
CONSIST_API std::vector<std::string> named_transports(const RunConfig& config);
/// True if --transport leaves a transport to choose: automatic_transport, for all axes or for some.
CONSIST_API bool leaves_transports_open(const RunConfig& config);

/// Makes the transport plugin of this name with its options. Throws UsageError if there is none, UnavailableError if it cannot serve
/// devices of this kind (DeviceInfo::kind) here.
CONSIST_API std::shared_ptr<Transport> make_transport(const std::string& name, const RunConfig& config, PluginHost& host,
                                                      const std::string& device_kind);

}  // namespace consist
