// Files that a run reads and writes: weights at its start, checkpoints, and the trained model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/checkpoint/snapshots.h"
#include "core/config/run_config.h"
#include "core/job/continuation.h"
#include "core/job/job.h"
#include "core/plan/parts.h"
#include "core/state/owned_tensors.h"
#include "core/state/state_saver.h"
#include "core/state/training_state.h"
#include "core/weights/stored_dtype.h"

namespace consist {

/// One per rank and run, used from the trainer's thread; the parts and the job must outlive it. Each rank writes the
/// parts that it owns, to a folder that all ranks share; a checkpoint of one layout is read in any other.
class SavedState {
 public:
  /// Called by every rank. With --resume, and where earlier ranks of the run have failed, finds the newest sound checkpoint.
  /// Takes the folders of checkpoints and export on rank 0, so that one that cannot be used is an error before anything is
  /// trained. Throws UsageError if the checkpoint is of a run that read other data or went further, or for a folder whose content
  /// would be lost or mixed with another run's, SystemError if one cannot be made or is in use.
  SavedState(const RunConfig& config, const Parts& parts, const Layout& layout, JoinedJob& job, const Continuation& continuation);
  ~SavedState();  ///< removes an export folder that it has made and that nothing came into
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  /// True if --resume found that the run had ended before, its export included; rank 0 has said so then, and there is nothing to
  /// fill, save or export.
  bool nothing_left() const noexcept { return nothing_left_; }
  /// "the checkpoint in FOLDER": where fill() took its values from; for messages.
  std::string source() const;

  /// To be called before what follows: `config` is the configuration as the job has settled it, which checkpoints state; from
  /// `data`, which outlives this, an export takes the tokenizer; `device` has the memory of the state.
  void begin(const RunConfig& config, const Dataset& data, std::shared_ptr<Device> device);

  /// Called by every rank: gives `state` its values and returns the number of steps that they have been trained for. With
  /// --resume these are the newest sound checkpoint's, if there is one; otherwise the model folder's weights or, for a preset
  /// and with --from-scratch, initial ones (then 0). Throws DataError naming the file and the tensor if something is missing,
  /// left over, corrupt or of another shape.
  std::int64_t fill(TrainingState& state);

  /// After fill(): what schedule_change() in resume_checks.h says of the checkpoint; empty without one.
  std::string schedule_change(PluginHost& host) const;

  /// CompileRequest::room of the checkpoint that fill() reads, 1 without one; and what save() says of it from now on.
  double room() const noexcept { return room_; }
  void set_room(double room) noexcept { room_ = room; }

  /// Called by every rank: saves the state after `step` steps. See StateSaver, which saver() is, for when it is complete
  /// and what is thrown.
  StateSaver::Outcome save(TrainingState& state, std::int64_t step, StateSaver::Where where);
  StateSaver& saver() noexcept { return *saver_; }

  /// Called by every rank: writes config.json, the tokenizer and the weights to the export folder, if one is given: all of them,
  /// or nothing if it throws. Of a run with an adapter that is what PEFT loads of the adapter (core/state/adapter_export.h), or
  /// with --export-merged the model with it. The weights are in export_dtype(); in f32, with a warning, where binary16 cannot
  /// hold one of them. Weights that are divided go through a folder "parts.partial" in it, from which rank 0 puts them together.
  void export_model(TrainingState& state) const;

 private:
  void find_newest_checkpoint();
  NeededRanges needed_by(const TrainingState& state) const;
  bool is_behind_snapshot();
  /// The ranks that save together: those of a host where there are snapshots, else all (none).
  std::span<const int> savers() const { return keeps_snapshots_ ? job_.host_ranks() : std::span<const int>(); }
  std::int64_t fill_values(TrainingState& state);
  void prepare_saving(TrainingState& state);
  /// True if an export that is there may be replaced: as asked, or since ranks of this run that failed may have written it.
  bool may_replace_export() const noexcept { return config_.overwrite || job_.generation() > 0; }
  void resume_from_checkpoint(TrainingState& state);
  StoredDType dtype_that_holds(const OwnedTensors& mine, bool divided) const;
  void export_parts(const OwnedTensors& mine, StoredDType dtype) const;
  bool exports_adapter_alone() const noexcept;
  bool is_exported(const Parameter& parameter) const;
  void write_export(std::vector<TensorSource> trained, StoredDType dtype) const;

  RunConfig config_;
  const Parts& parts_;
  const Dataset* data_ = nullptr;
  std::shared_ptr<Device> device_;
  JoinedJob& job_;
  const bool goes_on_;           // what is there is of this run: with --resume, or after a failure
  const bool own_archive_;       // earlier ranks of this run have named it
  const bool keeps_snapshots_;
  std::string layout_;
  std::int64_t sequences_per_step_;
  /// By parameter of the whole model, of which a pipeline stage has some: what a checkpoint holds for it, its own name first.
  std::vector<std::vector<std::string>> parameters_;
  std::unique_ptr<StateSaver> saver_;
  Snapshots* snapshots_ = nullptr;            // the saver's; null: none are kept
  std::optional<Checkpoint> checkpoint_;      // to resume from
  bool from_memory_ = false;                  // it is a snapshot
  StoredDType export_dtype_ = DType::f32;     // as asked, with --export
  double room_ = 1;
  bool nothing_left_ = false;
  bool made_export_folder_ = false;
};

}  // namespace consist
