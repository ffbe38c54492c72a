#include "core/passes/keep_layers.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "consist/analysis.h"
#include "consist/op.h"
#include "core/base/index.h"

namespace consist {
namespace {

constexpr int longest_period = 8;

/// The instructions of each layer, if they lie side by side in the order of layers; else nothing.
struct Blocks {
  std::vector<std::size_t> begin;  // by layer, and the end of the last one

  explicit Blocks(const Program& forward) {
    for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
      const int layer = forward.instructions[i].tag.layer;
      if (layer == layers()) {
        begin.push_back(i);
        end_ = i + 1;
      } else if (layer >= 0 && layer + 1 == layers() && end_ == i) {
        end_ = i + 1;
      } else if (layer >= 0) {
        begin.clear();
        return;
      }
    }
    begin.push_back(end_);
  }
  int layers() const { return static_cast<int>(begin.size()); }

 private:
  std::size_t end_ = 0;
};

/// Texts by layer that are equal where layers compute the same: ops, attributes, shapes, what is read from where.
class Signatures {
 public:
  Signatures(const Program& forward, const Blocks& blocks) : forward_(forward), def_use_(forward) {
    for (const Parameter& p : forward.parameters) parameters_[p.tensor] = &p;
    of_layer_.resize(blocks.begin.size() - 1);
    for (std::size_t layer = 0; layer + 1 < blocks.begin.size(); ++layer) {
      own_parameters_.clear();
      for (std::size_t i = blocks.begin[layer]; i < blocks.begin[layer + 1]; ++i) add(of_layer_[layer], i, blocks, layer);
    }
  }
  const std::string& operator[](int layer) const { return of_layer_[index(layer)]; }

 private:
  void add(std::string& text, std::size_t i, const Blocks& blocks, std::size_t layer) {
    const Instruction& instruction = forward_.instructions[i];
    text.append(instruction.op->name()) += instruction.attributes.key();
    for (const TensorId input : instruction.inputs) {
      text += ' ';
      if (input == no_tensor) continue;
      const InstructionId producer = def_use_.producer(input);
      if (producer >= 0 && layer > 0 && index(producer) >= blocks.begin[layer - 1]) {  // of this layer, or of the one before
        const bool here = index(producer) >= blocks.begin[layer];
        const auto& outputs = forward_.instructions[index(producer)].outputs;
        text += (here ? "=" : "-") + std::to_string(index(producer) - blocks.begin[here ? layer : layer - 1]) + "." +
                std::to_string(std::find(outputs.begin(), outputs.end(), input) - outputs.begin());
      } else if (const auto parameter = parameters_.find(input); parameter != parameters_.end()) {
        const auto number = own_parameters_.try_emplace(input, own_parameters_.size()).first->second;
        const Tensor& tensor = forward_[input];
        text += "p" + std::to_string(number) + tensor.shape.text() + (parameter->second->trainable ? "" : "f");
      } else {
        text += "%" + std::to_string(input);
      }
    }
    for (const TensorId output : instruction.outputs) text += output == no_tensor ? "_" : ">" + forward_[output].shape.text();
    text += ';';
  }

  const Program& forward_;
  DefUse def_use_;
  std::map<TensorId, const Parameter*> parameters_;
  std::map<TensorId, std::size_t> own_parameters_;
  std::vector<std::string> of_layer_;
};

/// Layers [begin, end), each like the one `period` later.
struct Run {
  int begin = 0, end = 0, period = 1;
  int length() const { return end - begin; }
};

Run longest_run(const Signatures& signatures, int layers) {
  Run best;
  for (int period = 1; period <= std::min(longest_period, layers / 2); ++period) {
    for (int begin = 0; begin + period < layers;) {
      int end = begin + period;
      while (end < layers && signatures[end] == signatures[end - period]) ++end;
      if (end > begin + period && end - begin > best.length()) best = {begin, end, period};
      begin = std::max(begin + 1, end - period + 1);
    }
  }
  return best;
}

/// Takes layers [from, to) out of a program.
class Removal {
 public:
  Removal(Program& forward, const Blocks& blocks, int from, int to, int period)
      : forward_(forward),
        blocks_(blocks),
        from_(from),
        to_(to),
        period_(period),
        instead_(forward.tensors.size()),
        gone_(forward.tensors.size()) {}

  void apply() {
    find_replacements();
    drop_parameters();
    std::erase_if(forward_.routers, [&](const Router& r) { return r.layer >= from_ && r.layer < to_; });
    std::vector<Instruction> old = std::exchange(forward_.instructions, {});
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (i >= blocks_.begin[index(from_)] && i < blocks_.begin[index(to_)]) continue;
      renumber(old[i].tag.layer);
      forward_.instructions.push_back(std::move(old[i]));
    }
    for (Router& router : forward_.routers) renumber(router.layer);
    compact();
  }

 private:
  void renumber(std::int16_t& layer) const {
    if (layer >= to_) layer = static_cast<std::int16_t>(layer - (to_ - from_));
  }

  /// The tensors of removed layers, and those that stand in the same places of the last period that stays.
  void find_replacements() {
    for (std::size_t t = 0; t < instead_.size(); ++t) instead_[t] = static_cast<TensorId>(t);
    for (int layer = from_; layer < to_; ++layer) {
      const std::size_t begin = blocks_.begin[index(layer)],
                        like = blocks_.begin[index(from_ - period_ + (layer - from_) % period_)];
      for (std::size_t i = begin; i < blocks_.begin[index(layer + 1)]; ++i) {
        const std::vector<TensorId>& outputs = forward_.instructions[i].outputs;
        for (std::size_t k = 0; k < outputs.size(); ++k) {
          if (outputs[k] == no_tensor) continue;
          gone_[index(outputs[k])] = true;
          instead_[index(outputs[k])] = forward_.instructions[like + i - begin].outputs[k];
        }
      }
    }
  }

  void drop_parameters() {
    std::vector<bool> read_elsewhere(forward_.tensors.size(), false), read_there = read_elsewhere;
    for (std::size_t i = 0; i < forward_.instructions.size(); ++i) {
      const bool removed = i >= blocks_.begin[index(from_)] && i < blocks_.begin[index(to_)];
      for (const TensorId input : forward_.instructions[i].inputs) {
        if (input != no_tensor) (removed ? read_there : read_elsewhere)[index(input)] = true;
      }
    }
    std::erase_if(forward_.parameters, [&](const Parameter& p) {
      const bool removed = read_there[index(p.tensor)] && !read_elsewhere[index(p.tensor)];
      if (removed) gone_[index(p.tensor)] = true;
      return removed;
    });
  }

  /// Leaves out the tensors that are gone.
  void compact() {
    std::vector<TensorId> place(forward_.tensors.size(), no_tensor);
    std::vector<Tensor> kept;
    for (std::size_t t = 0; t < forward_.tensors.size(); ++t) {
      if (gone_[t]) continue;
      place[t] = static_cast<TensorId>(kept.size());
      kept.push_back(std::move(forward_.tensors[t]));
    }
    const auto move = [&](TensorId& id) {
      if (id != no_tensor) id = place[index(instead_[index(id)])];
    };
    for (Tensor& tensor : kept) move(tensor.storage);
    forward_.tensors = std::move(kept);
    for (Instruction& i : forward_.instructions) {
      std::for_each(i.inputs.begin(), i.inputs.end(), move);
      std::for_each(i.outputs.begin(), i.outputs.end(), move);
    }
    for (Parameter& parameter : forward_.parameters) move(parameter.tensor);
    for (Constant& constant : forward_.constants) move(constant.tensor);
    for (Router& router : forward_.routers) move(router.statistics);
    for (StepOutput& output : forward_.outputs) move(output.tensor);
    move(forward_.loss);
  }

  Program& forward_;
  const Blocks& blocks_;
  int from_, to_, period_;
  std::vector<TensorId> instead_;  // by tensor
  std::vector<bool> gone_;         // by tensor
};

}  // namespace

KeptLayers keep_layers(Program& forward, int periods) {
  const Blocks blocks(forward);
  const int layers = blocks.layers() - 1;
  KeptLayers result{layers, layers};
  if (layers < 2) return result;
  const Run run = longest_run(Signatures(forward, blocks), layers);
  const int removed = (run.length() / run.period - periods) * run.period;
  if (removed <= 0) return result;
  Removal(forward, blocks, run.end - removed, run.end, run.period).apply();
  result.kept -= removed;
  return result;
}

}  // namespace consist
