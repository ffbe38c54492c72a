#include "core/state/loaded_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "consist/error.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/frozen/freeze.h"
#include "core/state/adapter_export.h"
#include "core/state/initial_values.h"
#include "core/state/resume_checks.h"
#include "core/state/weights_in_blocks.h"
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

bool is_of_adapter(const Parts& parts, const Parameter& parameter) {
  return parts.adapted && parameter.model.empty() && !parts.adapted->is_of_base(parameter.name);
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

/// The file of a model's weights, and the parameters of this rank's program that are read from it.
class FolderWeights {
 public:
  /// `architecture`: what config.json describes. `prefix`: of the program's names before those of files.
  FolderWeights(const std::string& folder, const Architecture& architecture, std::string prefix = "")
      : folder_(folder), weights_(folder), model_(whole_model(architecture, {})), prefix_(std::move(prefix)) {}

  void add(const Program& program, const Parameter& parameter) {
    const std::string name = parameter.name.substr(prefix_.size());
    const std::vector<StoredPart>& files =
        stored_.emplace(parameter.name, stored_parts(name, program.shape_of(parameter))).first->second;
    for (const StoredPart& part : files)
      check_shape(weights_.shape(part.name), part.shape, weights_.file_of(part.name).path(), part.name);
  }

  void check_head() const {
    if (weights_.has(head_name) && !is_parameter(head_name) && is_parameter(embedding_name)) check_tied_head(weights_, folder_);
  }

  /// False if the parameter was not added.
  bool read(const std::string& parameter, std::int64_t first, std::span<float> out) const {
    const auto found = stored_.find(parameter);
    if (found == stored_.end()) return false;
    read_parts(weights_, found->second, first, out);
    return true;
  }

  /// Once all parameters of this rank are added: a tensor of a wrong shape is the better message.
  void refuse_left_over() const {
    const std::vector<std::string> all = weights_.names();
    std::set<std::string, std::less<>> left_over(all.begin(), all.end());
    for (const Parameter& parameter : model_.parameters) {
      for (const StoredPart& part : stored_parts(parameter.name, model_[parameter.tensor].shape)) left_over.erase(part.name);
    }
    std::erase_if(left_over, may_be_left_over);
    if (left_over.empty()) return;
    throw DataError(weights_.file_of(*left_over.begin()).path() + ": '" + *left_over.begin() + "'" +
                    (left_over.size() > 1 ? " and " + std::to_string(left_over.size() - 1) + " more" : "") +
                    " have no place in the model that config.json describes");
  }

 private:
  bool is_parameter(const char* name) const {
    return std::any_of(model_.parameters.begin(), model_.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  }
  std::string folder_;
  ModelWeights weights_;
  Program model_;
  std::string prefix_;
  std::map<std::string, std::vector<StoredPart>, std::less<>> stored_;  // by parameter
};

/// The folders that the weights of a run begin from, each model's by the name that Parameter::model gives it.
std::map<std::string, FolderWeights, std::less<>> folders_of(const Parts& parts, const RunConfig& config) {
  std::map<std::string, FolderWeights, std::less<>> folders;
  if (!parts.model_folder.empty() && !config.from_scratch)
    folders.try_emplace("", parts.model_folder, parts.adapted ? parts.adapted->base() : *parts.language_model);
  if (!parts.loss) return folders;
  for (const FoundFrozen& model : parts.loss->frozen()) {
    if (!model.folder.empty()) folders.try_emplace(model.name, model.folder, *model.architecture, model.name + ".");
  }
  return folders;
}

}  // namespace

void fill_weights(TrainingState& state, const Parts& parts, const RunConfig& config, int threads, bool checks_head) {
  std::map<std::string, FolderWeights, std::less<>> folders = folders_of(parts, config);
  if (folders.empty()) return state.initialize(config.seed, threads);
  const Program& program = state.step().program();
  std::optional<ModelWeights> adapter;
  if (!parts.adapter_folder.empty()) adapter.emplace(adapter_in(parts));
  std::map<std::string, const Parameter*, std::less<>> parameters;
  for (const Parameter& parameter : program.parameters) {
    parameters.emplace(parameter.name, &parameter);
    const auto folder = folders.find(parameter.model);
    if (is_of_adapter(parts, parameter)) {
      const std::string name = peft_prefix + parameter.name;
      if (adapter) check_shape(adapter->shape(name), program[parameter.tensor].shape, adapter->file_of(name).path(), name);
    } else if (folder != folders.end()) {
      folder->second.add(program, parameter);
    }
  }
  if (const auto own = folders.find(""); own != folders.end() && checks_head) own->second.check_head();
  for (const auto& [model, folder] : folders) folder.refuse_left_over();
  state.load_weights(
      [&](const std::string& name, std::int64_t first, std::span<float> out) {
        const Parameter& parameter = *parameters.find(name)->second;
        const auto folder = folders.find(parameter.model);
        if (folder != folders.end() && folder->second.read(name, first, out)) return;
        if (adapter && is_of_adapter(parts, parameter))
          adapter->read_f32(peft_prefix + name, first, out);
        else
          initial_values(out, config.seed, parameter, first);
      },
      threads);
}

void load_checkpoint_weights(TrainingState& state, const Checkpoint& checkpoint, int threads) {
  const TensorParts saved = checkpoint.open_all();
  const WeightBlocks blocks = frozen_weights_of(checkpoint.state(), checkpoint.path());
  std::set<std::string, std::less<>> in_blocks;
  const Program& program = state.step().program();
  for (const Parameter& parameter : program.parameters) {
    if (!saved.has(parameter.name))
      throw DataError(checkpoint.path() + " has no '" + parameter.name + "': it is of another model");
    const Shape shape = program.shape_of(parameter);
    const bool is_of_bytes = blocks.any() && saved.is_of_bytes(parameter.name);
    if (is_of_bytes) in_blocks.insert(parameter.name);
    check_shape(saved.shape(parameter.name), is_of_bytes ? blocks.stored(shape) : shape, saved.path(parameter.name),
                parameter.name);
  }
  state.load_weights(
      [&](const std::string& name, std::int64_t first, std::span<float> out) {
        if (!in_blocks.contains(name)) return saved.read_f32(name, first, out);
        decode_part(blocks, first, out, [&](std::int64_t at, std::span<std::uint8_t> bytes) {
          saved.read(name, DType::u8, at, std::ssize(bytes), bytes.data());
        });
      },
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
  fill_weights(state, parts, config, threads, job.rank() == 0);
  return {parts.model_folder, 0};
}

}  // namespace consist
