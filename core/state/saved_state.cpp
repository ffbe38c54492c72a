#include "core/state/saved_state.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/archive/reader.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/program/local_ranges.h"
#include "core/state/adapter_export.h"
#include "core/state/export_dtype.h"
#include "core/state/loaded_weights.h"
#include "core/state/resume_checks.h"
#include "core/weights/hub_cache.h"
#include "core/weights/model_weights.h"

namespace consist {
namespace {

/// By parameter of the model, the names of what a checkpoint holds for it: its own first, see TrainingState::Value.
std::vector<std::vector<std::string>> names_of_parameters(const Program& program, const OptimizerUses& optimizers) {
  std::vector<std::vector<std::string>> names;
  for (const Parameter& parameter : program.parameters) {
    names.push_back({parameter.name});
    if (!parameter.trainable) continue;
    for (const OptimizerState& state :
         optimizers.of(parameter.name).optimizer->states(parameter, program[parameter.tensor].shape))
      names.back().push_back(parameter.name + "." + state.name);
  }
  return names;
}

/// True, on the rank that writes the run's archive, if the archive lacks its end: the run was ended after its last checkpoint.
/// `own`: it is this run's, even where it might be replaced.
bool archive_is_open(const RunConfig& config, bool own) {
  std::error_code ignored;
  return !config.archive.empty() && std::filesystem::exists(config.archive, ignored) && (own || !config.overwrite) &&
         ArchiveReader(config.archive).status() != "finished";
}

}  // namespace

SavedState::SavedState(const RunConfig& config, const Parts& parts, const Layout& layout, JoinedJob& job,
                       const Continuation& continuation)
    : config_(config),
      parts_(parts),
      job_(job),
      goes_on_(config.resume || job.generation() > 0),
      own_archive_(continuation.archived()),
      keeps_snapshots_(continuation.snapshot_every > 0 && !continuation.snapshots.empty()),
      layout_(mesh_text(layout.mesh)),
      sequences_per_step_(config.batch * config.accumulation * layout.batch_ranks()),
      parameters_(names_of_parameters(whole_model(*parts.architecture, config.freeze), parts.optimizers(config))) {
  if (!parts.model_folder.empty() && !config.from_scratch && !ModelWeights::present(parts.model_folder)) {
    if (is_hub_model(config.model))
      throw UsageError("--model " + config.model + " has no weights on this machine; " +
                       how_to_download(hub_model(config.model)) + "; --from-scratch initialises weights");
    throw UsageError("--model " + parts.model_folder + " has a config.json and no weights (model.safetensors or its index)" +
                     ModelWeights::advice(parts.model_folder) + "; --from-scratch initialises weights");
  }
  if (!config.export_folder.empty()) export_dtype_ = export_dtype(config, parts);
  std::unique_ptr<Snapshots> snapshots;
  if (keeps_snapshots_) snapshots = std::make_unique<Snapshots>(job, continuation.snapshots);
  snapshots_ = snapshots.get();
  if (goes_on_) find_newest_checkpoint();
  if (nothing_left_) return;
  std::unique_ptr<CheckpointWriter> disk;
  if (!config.checkpoint.empty() && job.rank() == 0) {
    const std::vector<CheckpointPlace> places = list_checkpoints(config.checkpoint);
    if (!goes_on_ && !places.empty()) {
      throw UsageError("--checkpoint " + config.checkpoint + " holds a checkpoint of step " +
                       std::to_string(places.front().step) + " already; give --resume to go on from it, or another folder");
    }
    disk = std::make_unique<CheckpointWriter>(config.checkpoint, config.checkpoint_keep);
  }
  saver_ = std::make_unique<StateSaver>(job, std::move(disk), std::move(snapshots), continuation.snapshot_share);
  if (!config.export_folder.empty() && job.rank() == 0) {
    if (std::error_code ignored;
        std::filesystem::exists(config.export_folder, ignored) && !std::filesystem::is_directory(config.export_folder, ignored)) {
      throw UsageError("--export " + config.export_folder + " is a file; name a folder, which is made if it is not there");
    }
    if (!may_replace_export() && holds_export(config.export_folder)) {
      throw UsageError("--export " + config.export_folder + " holds weights already; give another folder, or --overwrite");
    }
    std::error_code error;
    made_export_folder_ = std::filesystem::create_directories(config.export_folder, error);
    if (error) throw SystemError("--export " + config.export_folder + " cannot be made: " + error.message());
    for (const char* name : {"config.json", "tokenizer.json", "adapter_config.json"})
      check_output({"--export", config.export_folder + "/" + name, may_replace_export()});
  }
}

SavedState::~SavedState() {
  // A run that failed before its export: the folder is as empty as it was made, and remove() takes no other.
  std::error_code ignored;
  if (made_export_folder_) std::filesystem::remove(config_.export_folder, ignored);
}

void SavedState::begin(const RunConfig& config, const Dataset& data, std::shared_ptr<Device> device) {
  config_ = config;
  data_ = &data;
  device_ = std::move(device);
}

std::int64_t SavedState::fill(TrainingState& state) {
  const std::int64_t step = fill_values(state);
  prepare_saving(state);
  return step;
}

std::int64_t SavedState::fill_values(TrainingState& state) {
  if (checkpoint_) {
    const bool gathers = from_memory_ && snapshots_->is_moved();
    if (gathers) checkpoint_ = snapshots_->gather(needed_by(state));
    resume_from_checkpoint(state);
    if (gathers) snapshots_->drop_gathered();
    return checkpoint_->state().step;
  }
  fill_weights(state, parts_, config_, filling_threads(job_), job_.rank() == 0);
  return 0;
}

void SavedState::find_newest_checkpoint() {
  if (snapshots_ != nullptr) {
    std::vector<std::string> names;
    for (const std::vector<std::string>& parameter : parameters_) names.insert(names.end(), parameter.begin(), parameter.end());
    checkpoint_ = snapshots_->find(layout_, names);
    snapshots_->forget_later(checkpoint_ ? checkpoint_->state().step : 0);
  }
  from_memory_ = checkpoint_.has_value();
  if (!config_.checkpoint.empty() && !is_behind_snapshot()) {
    checkpoint_ = find_checkpoint(job_, config_.checkpoint);
    from_memory_ = false;
  }
  if (!checkpoint_) {
    if (job_.rank() == 0 && config_.resume)
      log::warn("--resume: there is no checkpoint in " + config_.checkpoint + " yet; the run begins at its start");
    return;
  }
  const CheckpointState& saved = checkpoint_->state();
  room_ = saved.room;
  check_same_data(saved, checkpoint_->path(), config_, sequences_per_step_);
  check_same_trained(saved, checkpoint_->path(), config_);
  if (saved.step > config_.steps) {
    throw UsageError("--resume: " + checkpoint_->path() + " is of step " + std::to_string(saved.step) + " and --steps is " +
                     std::to_string(config_.steps) + "; ask for at least as many steps, or give another --checkpoint folder");
  }
  if (saved.step < config_.steps) return;
  if (job_.rank() == 0)  // which has the archive
    nothing_left_ =
        !archive_is_open(config_, own_archive_) && (config_.export_folder.empty() || holds_export(config_.export_folder));
  nothing_left_ = job_.broadcast("resume.nothing_left", nothing_left_ ? "yes" : "no", job_.timeout()) == "yes";
  if (nothing_left_ && job_.rank() == 0) {
    std::printf("%s is of step %lld, the last one: the run has finished, nothing is left to do\n",
                printable(checkpoint_->path()).c_str(), static_cast<long long>(saved.step));
  }
}

NeededRanges SavedState::needed_by(const TrainingState& state) const {
  const Program& program = state.step().program();
  NeededRanges needed;
  for (const TrainingState::Value& value : state.values()) {
    const Tensor& tensor = program[value.tensor];
    needed[stored_name(value, job_.rank())] = value.kind == StateKind::per_rank
                                                  ? std::vector<LocalRange>{{0, 0, value.shape.elements()}}
                                                  : local_ranges(tensor.shape, tensor.placements, program.mesh, job_.rank());
  }
  return needed;
}

void SavedState::resume_from_checkpoint(TrainingState& state) {
  const Checkpoint* checkpoint = &*checkpoint_;
  const CheckpointState& saved = checkpoint->state();
  if (job_.rank() == 0 && saved.layout != layout_ && !from_memory_) {
    log::warn("--resume: the checkpoint is of the layout '" + saved.layout + "', this run's is '" + layout_ +
              "': sums are rounded in another order");
  }

  const TensorParts saved_tensors = checkpoint->open_all(from_memory_ && snapshots_->is_moved());
  if (!from_memory_)  // of a host, which lacks what its ranks do not hold
    check_names(saved_tensors, parameters_, state, job_.size(), state.step().program().stage_axis >= 0, checkpoint->path());
  std::vector<TrainingState::Value> there;
  bool warned = false;
  for (const TrainingState::Value& value : state.values()) {
    const std::string name = stored_name(value, job_.rank());
    if (value.kind == StateKind::per_rank && saved.layout != layout_) {
      throw UsageError("--resume: the state '" + value.name + "' is each rank's own, and " + checkpoint->path() +
                       " is of the layout '" + saved.layout + "', this run's is '" + layout_ +
                       "'; resume with the ranks and the strategy that were trained");
    }
    if (!saved_tensors.has(name)) {
      if (value.kind != StateKind::discardable)
        throw DataError(checkpoint->path() + " has no state '" + name +
                        "'; resume with the strategy and the precision that were trained");
      if (!std::exchange(warned, true))
        log::warn("--resume: " + checkpoint->path() + " has no '" + name + "'; what this run keeps of steps before begins anew");
      continue;
    }
    check_shape(saved_tensors.shape(name), value.shape, saved_tensors.path(name), name);
    there.push_back(value);
  }
  state.load_values(
      there,
      [&](const TrainingState::Value& value, std::int64_t first, std::int64_t count, void* out) {
        saved_tensors.read(stored_name(value, job_.rank()), value.dtype, first, count, out);
      },
      filling_threads(job_));
}

/// True if the newest checkpoint on the disk is no newer than the snapshot that was found.
bool SavedState::is_behind_snapshot() {
  if (!checkpoint_) return false;
  bool behind = true;
  if (job_.rank() == 0) {
    const std::vector<CheckpointPlace> places = list_checkpoints(config_.checkpoint);
    behind = places.empty() || places.front().step <= checkpoint_->state().step;
  }
  return job_.broadcast("snapshot.newest", behind ? "yes" : "no", job_.timeout()) == "yes";
}

std::string SavedState::source() const {
  return from_memory_ ? "the snapshot in memory" : checkpoint_ ? "the checkpoint in " + config_.checkpoint : "its start";
}

std::string SavedState::schedule_change(PluginHost& host) const {
  if (!checkpoint_) return "";
  return consist::schedule_change(checkpoint_->state(), checkpoint_->path(), config_, *parts_.schedule, host);
}

void SavedState::prepare_saving(TrainingState& state) {
  const bool beside = !config_.checkpoint.empty() && (config_.checkpoint_every > 0 || config_.checkpoint_each_epoch);
  const OwnedTensors mine = owned_values(state, job_.rank(), savers());
  if (!saver_->prepare(device_, mine, beside) && job_.local_rank() == 0)
    log::warn("checkpoints are written between steps, not beside them: " + std::string(job_.host()) +
              " lacks memory for a copy of what its ranks save");
}

StateSaver::Outcome SavedState::save(TrainingState& state, std::int64_t step, StateSaver::Where where) {
  CheckpointState saved;
  saved.step = step;
  saved.seed = config_.seed;
  saved.data_position = step * sequences_per_step_;
  saved.ranks = config_.ranks;
  saved.layout = layout_;
  saved.room = room_;
  saved.config = config_.to_json();
  return saver_->save(owned_values(state, job_.rank(), savers()), owned_values(state, job_.rank()), std::move(saved), where);
}

}  // namespace consist
