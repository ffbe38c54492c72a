#include "core/passes/recompute.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/base/index.h"
#include "core/base/split.h"
#include "core/passes/layer_range.h"

namespace consist {
namespace {

class Recomputer {
 public:
  Recomputer(Program& program, const RecomputeRequest& request)
      : program_(program),
        request_(request),
        forward_(std::move(program.instructions)),
        copy_(program.tensors.size(), no_tensor) {
    program_.instructions.clear();
    const auto backward =
        std::find_if(forward_.begin(), forward_.end(), [](const Instruction& i) { return i.tag.phase != Phase::forward; });
    backward_.assign(std::make_move_iterator(backward), std::make_move_iterator(forward_.end()));
    forward_.erase(backward, forward_.end());
    sum_kept_.assign(forward_.size(), false);
    candidate_.assign(forward_.size(), false);
    def_use_.emplace(program.tensors.size(), forward_);
  }

  void run() {
    choose();
    program_.instructions = forward_;
    for (Instruction& i : backward_) {
      for (TensorId& input : i.inputs) input = value_for(input, i.tag.layer);
      program_.instructions.push_back(std::move(i));
    }
  }

 private:
  bool wanted(const Instruction& i) const {
    if (i.tag.layer < request_.first_layer || (request_.last_layer >= 0 && i.tag.layer > request_.last_layer)) return false;
    return request_.full || std::find(request_.ops.begin(), request_.ops.end(), i.op->name()) != request_.ops.end();
  }

  /// The forward instruction that makes a tensor.
  std::size_t maker(TensorId id) const { return static_cast<std::size_t>(def_use_->producer(id)); }

  bool is_of_layer(TensorId id, std::int16_t layer) const {
    return id != no_tensor && def_use_->is_made(id) && forward_[maker(id)].tag.layer == layer;
  }

  /// True if readers in `layer` get a repeated value for `id`. The output of another layer is kept, or the repetition would go on
  /// to the embedding.
  bool is_repeated(TensorId id, std::int16_t layer) const {
    if (id == no_tensor || !def_use_->is_made(id)) return false;
    const std::size_t n = maker(id);
    return candidate_[n] && forward_[n].tag.layer == layer && !(sum_kept_[n] && id == sum_of(forward_[n]));
  }

  /// Marks the forward instructions that may be repeated.
  void choose() {
    std::vector<bool> of_activations(program_.tensors.size(), false);
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const Tensor& tensor = program_.tensors[t];
      of_activations[t] = tensor.role == Role::input && !tensor.state;
    }
    for (std::size_t n = 0; n < forward_.size(); ++n) {
      const Instruction& i = forward_[n];
      const bool depends = std::any_of(i.inputs.begin(), i.inputs.end(),
                                       [&](TensorId id) { return id != no_tensor && of_activations[index(id)]; });
      for (TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        of_activations[index(output)] = depends;
      }
      candidate_[n] = (i.op->remade_in_backward() || (depends && wanted(i))) && can_repeat(i);
      if (const auto residual = i.op->residual_sum(); candidate_[n] && residual) sum_kept_[n] = keeps_sum(i, *residual);
    }
  }

  /// True unless the instruction writes states or metrics, updates in place a value that is gone by then, or reshards another
  /// layer's output for this layer: repeated, it would keep that output as well.
  bool can_repeat(const Instruction& i) const {
    if (i.op->changes_placement() &&
        std::none_of(i.inputs.begin(), i.inputs.end(), [&](TensorId id) { return is_of_layer(id, i.tag.layer); }))
      return false;
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const TensorId output = i.outputs[k];
      if (output == no_tensor) continue;
      const Tensor& t = program_[output];
      if (t.state || t.role == Role::metric) return false;
      if (t.storage == output) continue;
      const int updated = i.op->updates_in_place(static_cast<int>(k));
      if (updated < 0 || !is_repeated(i.inputs[static_cast<std::size_t>(updated)], i.tag.layer)) return false;
    }
    return true;
  }

  /// True if a norm of x + residual is better repeated on the sum: where x would have to be kept for it.
  bool keeps_sum(const Instruction& i, const ResidualSum& of) const {
    const auto residual = static_cast<std::size_t>(of.residual);
    return i.inputs.size() > residual && i.inputs[residual] != no_tensor && sum_of(i) != no_tensor &&
           !is_repeated(i.inputs[static_cast<std::size_t>(of.x)], i.tag.layer);
  }
  /// The sum that an instruction with a ResidualSum makes.
  static TensorId sum_of(const Instruction& i) { return i.outputs.at(static_cast<std::size_t>(i.op->residual_sum()->sum)); }

  /// The tensor that a reader in backward gets in place of forward's `id`.
  TensorId value_for(TensorId id, std::int16_t layer) {
    if (!is_repeated(id, layer)) return id;
    if (copy_[index(id)] == no_tensor) {
      for (const std::size_t n : missing_for(maker(id))) repeat(n);
    }
    return copy_[index(id)];
  }

  /// The instructions that must be repeated for `n`, and `n`, in the order of forward: linears that stand together there do so
  /// again, where pack_linears() finds them.
  std::set<std::size_t> missing_for(std::size_t n) const {
    std::set<std::size_t> missing{n};
    for (std::vector<std::size_t> open{n}; !open.empty();) {
      const std::size_t reader = open.back();
      open.pop_back();
      for (const TensorId input : inputs_of_repeated(reader)) {
        if (!is_repeated(input, forward_[reader].tag.layer) || copy_[index(input)] != no_tensor) continue;
        if (missing.insert(maker(input)).second) open.push_back(maker(input));
      }
    }
    return missing;
  }

  /// The inputs of forward's instruction `n` when it is repeated: where its sum is kept, that in place of the summands.
  std::vector<TensorId> inputs_of_repeated(std::size_t n) const {
    std::vector<TensorId> inputs = forward_[n].inputs;
    if (!sum_kept_[n]) return inputs;
    const ResidualSum of = *forward_[n].op->residual_sum();
    inputs[static_cast<std::size_t>(of.x)] = sum_of(forward_[n]);
    inputs[static_cast<std::size_t>(of.residual)] = no_tensor;
    return inputs;
  }

  void repeat(std::size_t n) {
    Instruction again = forward_[n];
    again.inputs = inputs_of_repeated(n);
    if (sum_kept_[n]) again.outputs[static_cast<std::size_t>(again.op->residual_sum()->sum)] = no_tensor;
    for (TensorId& input : again.inputs) {
      if (is_repeated(input, again.tag.layer)) input = copy_[index(input)];
    }
    again.tag.phase = Phase::backward;
    again.tag.inserted_by = recompute_name;
    for (TensorId& output : again.outputs) {
      if (output == no_tensor) continue;
      const auto id = static_cast<TensorId>(program_.tensors.size());
      Tensor tensor = program_[output];
      tensor.recomputed = true;
      tensor.storage = tensor.storage == output ? id : program_[copy_[index(tensor.storage)]].storage;
      program_.tensors.push_back(std::move(tensor));
      copy_[index(output)] = id;
      output = id;
    }
    program_.instructions.push_back(std::move(again));
  }

  Program& program_;
  const RecomputeRequest& request_;
  std::vector<Instruction> forward_, backward_;
  std::optional<DefUse> def_use_;        // of forward
  std::vector<bool> sum_kept_;           // by forward instruction: it is repeated on the sum that it made
  std::vector<bool> candidate_;          // by forward instruction: may be repeated
  std::vector<TensorId> copy_;           // by tensor of forward: what backward has instead
};

void check(const Program& program, const RecomputeRequest& request) {
  int layers = 0;
  std::set<std::string_view> there;
  for (const Instruction& i : program.instructions) {
    if (i.tag.phase != Phase::forward || i.tag.layer < 0) continue;
    layers = std::max(layers, i.tag.layer + 1);
    there.insert(i.op->name());
  }
  if (request.first_layer >= layers || request.last_layer >= layers) {
    throw UsageError("--recompute-layers " + layers_text(request) + ": the model has the layers 0 to " +
                     std::to_string(layers - 1));
  }
  for (const std::string& op : request.ops) {
    if (there.count(op) != 0) continue;
    std::string known;
    for (std::string_view name : there) known += " " + std::string(name);
    throw UsageError("--recompute " + what_text(request) + ": no layer has the op '" + op + "'. Give none, full, or some of" +
                     known);
  }
}

}  // namespace

RecomputeRequest parse_recompute(const std::string& what, const std::string& layers) {
  RecomputeRequest request;
  request.full = what == "full";
  if (!request.full && what != "none") {
    for (const std::string_view name : split(what, ',')) {
      if (name.empty() || name == "none" || name == "full")
        throw UsageError("--recompute is '" + what + "'; it must be none, full or a list of ops such as swiglu,rms_norm");
      request.ops.emplace_back(name);
    }
  }
  if (layers.empty()) return request;
  if (!request.any()) throw UsageError("--recompute-layers is given, but --recompute is none");
  std::tie(request.first_layer, request.last_layer) =
      parse_layers(layers, "--recompute-layers",
                   "--recompute-layers '" + layers + "' is no range of layers; write for example 0-15, or 3");
  return request;
}

std::string what_text(const RecomputeRequest& request) {
  if (request.full) return "full";
  std::string text;
  for (const std::string& op : request.ops) text += (text.empty() ? "" : ",") + op;
  return text.empty() ? "none" : text;
}

std::string layers_text(const RecomputeRequest& request) {
  if (request.last_layer < 0) return "";
  return std::to_string(request.first_layer) + "-" + std::to_string(request.last_layer);
}

void recompute(Program& program, const RecomputeRequest& request) {
  const bool remakes = std::ranges::any_of(program.instructions, [](const Instruction& i) { return i.op->remade_in_backward(); });
  if (!request.any() && !remakes) return;
  if (request.any()) check(program, request);
  Recomputer(program, request).run();
}

}  // namespace consist
