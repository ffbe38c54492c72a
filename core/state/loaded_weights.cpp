#include "core/state/loaded_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "consist/error.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/passes/freeze.h"
#include "core/state/adapter_export.h"
#include "core/state/initial_values.h"
#include "core/state/resume_checks.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"

namespace consist {

void check_shape(const Shape& found, const Shape& expected, const std::string& file, const std::string& name) {
  if (found != expected)
    throw DataError(file + ": '" + name + "' has the shape " + found.text() + ", the model needs " + expected.text());
}

namespace {

constexpr const char* embedding_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

/// Tensors that files of these architectures have and that decide nothing.
bool may_be_left_over(const std::string& name) {
  // Old files hold rope's frequencies; tied models may hold their head a second time (see check_tied_head).
  return name == head_name || name.ends_with("rotary_emb.inv_freq");
}

/// A tied model whose file has a head all the same: transformers 4 takes the embedding for it, transformers 5 takes it as it is
/// where its values differ. Which one is meant the file must say.
void check_tied_head(const ModelWeights& weights, const std::string& folder) {
  check_shape(weights.shape(head_name), weights.shape(embedding_name), weights.file_of(head_name).path(), head_name);
  const std::int64_t difference = first_difference(weights, embedding_name, head_name);
  if (difference < 0) return;
  throw DataError(
      weights.file_of(head_name).path() + ": '" + head_name + "' differs from '" + embedding_name + "' (first at element " +
      std::to_string(difference) + "), but " + folder +
      "/config.json says \"tie_word_embeddings\": true; transformers 4 would ignore the head, transformers 5 would not "
      "tie it. Set tie_word_embeddings to false to train both, or remove '" +
      head_name + "' to train the embedding as both");
}

/// The weights that the adapter begins with. Throws DataError if the model with its adapter has no place for some of them.
ModelWeights adapter_in(const Parts& parts) {
  ModelWeights weights(parts.adapter_folder + "/" + adapter_weights);
  std::set<std::string, std::less<>> known;
  for (const Parameter& parameter : whole_model(*parts.architecture, {}).parameters) known.insert(peft_prefix + parameter.name);
  for (const std::string& name : weights.names()) {
    if (known.contains(name)) continue;
    throw DataError(weights.file_of(name).path() + ": '" + name +
                    "' has no place in the adapted model; give the options with which this adapter was trained");
  }
  return weights;
}

}  // namespace

void load_model_folder(TrainingState& state, const Parts& parts, const RunConfig& config, int threads, bool checks_head) {
  const ModelWeights weights(parts.model_folder);
  const Program& program = state.step().program();
  std::optional<ModelWeights> adapter;
  if (!parts.adapter_folder.empty()) adapter.emplace(adapter_in(parts));
  std::map<std::string, std::vector<StoredPart>, std::less<>> stored;  // by parameter of this rank's program
  std::map<std::string, const Parameter*, std::less<>> of_adapter;
  for (const Parameter& parameter : program.parameters) {
    if (parts.adapted && !parts.adapted->is_of_base(parameter.name)) {
      of_adapter.emplace(parameter.name, &parameter);
      const std::string name = peft_prefix + parameter.name;
      if (adapter) check_shape(adapter->shape(name), program[parameter.tensor].shape, adapter->file_of(name).path(), name);
      continue;
    }
    const std::vector<StoredPart>& files =
        stored.emplace(parameter.name, stored_parts(parameter.name, program[parameter.tensor].shape)).first->second;
    for (const StoredPart& part : files)
      check_shape(weights.shape(part.name), part.shape, weights.file_of(part.name).path(), part.name);
  }
  const Program model = whole_model(parts.adapted ? parts.adapted->base() : *parts.architecture, {});
  const auto is_parameter = [&](const char* name) {
    return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  };
  if (checks_head && weights.has(head_name) && !is_parameter(head_name) && is_parameter(embedding_name))
    check_tied_head(weights, parts.model_folder);
  const std::vector<std::string> all = weights.names();
  std::set<std::string, std::less<>> left_over(all.begin(), all.end());
  for (const Parameter& parameter : model.parameters) {
    for (const StoredPart& part : stored_parts(parameter.name, model[parameter.tensor].shape)) left_over.erase(part.name);
  }
  std::erase_if(left_over, may_be_left_over);
  if (!left_over.empty()) {
    throw DataError(weights.file_of(*left_over.begin()).path() + ": '" + *left_over.begin() + "'" +
                    (left_over.size() > 1 ? " and " + std::to_string(left_over.size() - 1) + " more" : "") +
                    " have no place in the model that config.json describes");
  }
  state.load_weights(
      [&](const std::string& name, std::int64_t first, std::span<float> out) {
        if (const auto added = of_adapter.find(name); added == of_adapter.end())
          read_parts(weights, stored.find(name)->second, first, out);
        else if (adapter)
          adapter->read_f32(peft_prefix + name, first, out);
        else
          initial_values(out, config.seed, *added->second, first);
      },
      threads);
}

void load_checkpoint_weights(TrainingState& state, const Checkpoint& checkpoint, int threads) {
  const TensorParts saved = checkpoint.open_all();
  const Program& program = state.step().program();
  for (const Parameter& parameter : program.parameters) {
    if (!saved.has(parameter.name))
      throw DataError(checkpoint.path() + " has no '" + parameter.name + "': it is of another model");
    check_shape(saved.shape(parameter.name), program[parameter.tensor].shape, saved.path(parameter.name), parameter.name);
  }
  state.load_weights([&](const std::string& name, std::int64_t first, std::span<float> out) { saved.read_f32(name, first, out); },
                     threads);
}

namespace {

/// The states beside the weights that the state's program reads, such as averages that an optimizer keeps: from the checkpoint,
/// where it has them. What may begin at zeros and is not there does.
void load_checkpoint_states(TrainingState& state, const Checkpoint& checkpoint, int rank, int threads) {
  const TensorParts saved = checkpoint.open_all();
  const std::string layout = mesh_text(state.step().program().mesh);
  std::vector<TrainingState::Value> there;
  for (const TrainingState::Value& value : state.states_read()) {
    const std::string name = stored_name(value, rank);
    const bool readable = value.kind != StateKind::per_rank || checkpoint.state().layout == layout;
    if (readable && saved.has(name)) {
      check_shape(saved.shape(name), value.shape, saved.path(name), name);
      there.push_back(value);
    } else if (!readable) {
      throw UsageError("the state '" + value.name + "', which is read beside the weights, is each rank's own, and " +
                       checkpoint.path() + " is of the layout '" + checkpoint.state().layout + "', this is '" + layout +
                       "'; take the ranks and the strategy that were trained");
    } else if (value.kind != StateKind::discardable) {
      throw DataError(
          checkpoint.path() + " has no state '" + name +
          "', which is read beside the weights; take the optimizer, the strategy and the precision that were trained");
    }
  }
  state.load_values(
      there,
      [&](const TrainingState::Value& value, std::int64_t first, std::int64_t count, void* out) {
        saved.read(stored_name(value, rank), value.dtype, first, count, out);
      },
      threads);
}

/// A folder of weights has no states.
void refuse_states(const TrainingState& state, const std::string& folder) {
  for (const TrainingState::Value& value : state.states_read()) {
    if (value.kind == StateKind::discardable) continue;
    throw UsageError("the state '" + value.name + "' is read beside the weights, and --model " + folder +
                     " has weights alone; give the run's --checkpoint, or leave out the part that keeps the state");
  }
}

}  // namespace

void require_trained_weights(const RunConfig& config, const Parts& parts) {
  if (!config.checkpoint.empty()) return;
  if (parts.model_folder.empty()) {
    throw UsageError("--model " + config.model +
                     " is a preset, whose weights are random until they are trained; give the weights by "
                     "--checkpoint FOLDER, or a Hugging Face folder (such as that of --export) as --model");
  }
  if (!ModelWeights::present(parts.model_folder)) {
    throw UsageError("--model " + parts.model_folder + " has a config.json and no weights (model.safetensors or its index)" +
                     ModelWeights::advice(parts.model_folder));
  }
}

TrainedWeights load_trained_weights(TrainingState& state, const RunConfig& config, const Parts& parts, Job& job) {
  require_trained_weights(config, parts);
  const int threads = filling_threads(job);
  if (!config.checkpoint.empty()) {
    const std::optional<Checkpoint> checkpoint = find_checkpoint(job, config.checkpoint);
    if (!checkpoint) throw UsageError("--checkpoint " + config.checkpoint + ": there is no checkpoint in that folder");
    load_checkpoint_weights(state, *checkpoint, threads);
    load_checkpoint_states(state, *checkpoint, job.rank(), threads);
    const std::int64_t step = checkpoint->state().step;
    return {"step " + std::to_string(step) + " of " + config.checkpoint, step};
  }
  refuse_states(state, parts.model_folder);
  load_model_folder(state, parts, config, threads, job.rank() == 0);
  return {parts.model_folder, 0};
}

}  // namespace consist
