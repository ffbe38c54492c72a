#include "core/passes/unroll_micro_batches.h"

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/error.h"
#include "core/base/index.h"

namespace consist {
namespace {

class Repeater {
 public:
  explicit Repeater(Program& program)
      : program_(program),
        segment_(std::move(program.instructions)),
        tensors_(program.tensors.size()),
        def_use_(tensors_, segment_) {
    program_.instructions.clear();
    gradient_storage_.assign(tensors_, false);
    for (const Parameter& p : program_.parameters) {
      if (p.gradient != no_tensor) gradient_storage_[index(program_[p.gradient].storage)] = true;
    }
    std::vector<bool> known(tensors_, false);
    for (const Instruction& i : segment_) {
      for (const TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        const TensorId place = program_[output].storage;
        if (is_made(index(place)) || known[index(place)] || program_[place].role != Role::activation) continue;
        known[index(place)] = true;
        places_.push_back(place);
      }
    }
  }

  void run(int micro_batches) {
    program_.instructions.reserve(segment_.size() * static_cast<std::size_t>(micro_batches) +
                                  static_cast<std::size_t>(micro_batches));
    const TensorId first_loss = program_.loss;
    const std::vector<StepOutput> first_outputs = program_.outputs;
    for (int m = 0; m < micro_batches; ++m) {
      if (m == 0) {
        first();
      } else {
        again(m);
        Builder builder(program_);
        builder.tag = {Phase::backward, -1, static_cast<std::int16_t>(m), "unroll_micro_batches"};
        const auto add = [&](TensorId& sum, TensorId first, const std::string& name) {
          if (first == no_tensor) return;
          // In the stage of what is added: of an interleaved pipeline's stages on a rank others run earlier.
          builder.tag.stage = is_made(index(first)) ? segment_[static_cast<std::size_t>(def_use_.producer(first))].tag.stage : -1;
          sum = builder.emit_one("add", {sum, map_[index(first)]}, {}, name);
        };
        for (std::size_t k = 0; k < first_outputs.size(); ++k)
          add(program_.outputs[k].tensor, first_outputs[k].tensor, first_outputs[k].name);
        add(program_.loss, first_loss, "loss");  // where another rank does not have it
      }
    }
  }

 private:
  bool is_made(std::size_t tensor) const { return def_use_.is_made(static_cast<TensorId>(tensor)); }

  void first() {
    for (std::size_t t = 0; t < tensors_; ++t) {
      Tensor& tensor = program_.tensors[t];
      if (!is_made(t) && !tensor.state && tensor.role == Role::input) tensor.name += ".0";
    }
    for (const Instruction& i : segment_) {
      program_.instructions.push_back(i);
      program_.instructions.back().tag.micro_batch = 0;
    }
    // Where micro-batch 1 picks up the sums: the final value in each gradient's storage.
    for (std::size_t p = 0; p < program_.parameters.size(); ++p) {
      const TensorId id = program_.parameters[p].gradient;
      if (id == no_tensor) continue;
      const Tensor& gradient = program_[id];
      const bool apart = program_[gradient.storage].placements != gradient.placements;
      sums_.push_back({p, gradient.storage, id, id, apart});
    }
    sum_of_.assign(tensors_, -1);
    for (std::size_t s = 0; s < sums_.size(); ++s) sum_of_[index(sums_[s].storage)] = static_cast<int>(s);
  }

  void again(int m) {
    map_.assign(tensors_, no_tensor);
    for (std::size_t t = 0; t < tensors_; ++t) {
      if (is_made(t)) continue;
      const Tensor& tensor = program_.tensors[t];
      const bool per_micro_batch = !tensor.state && tensor.role == Role::input;
      map_[t] = per_micro_batch ? copy_input(static_cast<TensorId>(t), m) : static_cast<TensorId>(t);
    }
    for (const TensorId place : places_) {
      Tensor copy = program_[place];
      map_[index(place)] = copy.storage = static_cast<TensorId>(program_.tensors.size());
      program_.tensors.push_back(std::move(copy));
    }
    for (const Instruction& i : segment_) {
      Instruction copy = i;
      copy.tag.micro_batch = static_cast<std::int16_t>(m);
      for (TensorId& input : copy.inputs) {
        if (input != no_tensor) input = map_[index(input)];
      }
      for (std::size_t k = 0; k < copy.outputs.size(); ++k) {
        if (copy.outputs[k] != no_tensor) copy.outputs[k] = copy_output(copy, k, i.outputs[k]);
      }
      const Tag tag = copy.tag;
      program_.instructions.push_back(std::move(copy));
      add_up(tag);
    }
    for (Sum& sum : sums_) {
      sum.value = map_[index(sum.in_segment)];
      program_.parameters[sum.parameter].gradient = sum.value;
    }
  }

  /// Adds what the newest instruction could not add itself.
  void add_up(const Tag& tag) {
    Builder builder(program_);
    builder.tag = tag;
    builder.tag.inserted_by = "unroll_micro_batches";
    for (const auto& [sum, old] : to_add_) {
      TensorId& value = map_[index(old)];
      value = builder.emit_one("add", {sum, value}, {}, program_[old].name);
    }
    to_add_.clear();
  }

  TensorId copy_input(TensorId old, int m) {
    Tensor copy = program_[old];
    copy.name = copy.name.substr(0, copy.name.rfind('.')) + "." + std::to_string(m);
    copy.storage = static_cast<TensorId>(program_.tensors.size());
    program_.tensors.push_back(std::move(copy));
    return program_.tensors.back().storage;
  }

  /// The copy of output `old`, which is output k of the copied instruction. The first write of a gradient becomes an addition to
  /// the sum, by the instruction itself if it can: a collective and an op without an accumulator cannot, and a rank's summand
  /// that is reduced over ranks within the micro-batch is added behind that.
  TensorId copy_output(Instruction& instruction, std::size_t k, TensorId old) {
    const auto id = static_cast<TensorId>(program_.tensors.size());
    Tensor copy = program_[old];
    const bool is_first = copy.storage == old;
    const Sum* const sum = gradient_storage_[index(copy.storage)] ? &sum_of(copy.storage) : nullptr;
    const bool can_add = !instruction.op->is_collective() && instruction.op->updates_in_place(static_cast<int>(k)) >= 0;
    if (sum != nullptr && !sum->apart && (can_add || !is_first)) {
      if (is_first) add_into(program_, instruction, k, sum->value);
      // stays in the gradient's storage
    } else {
      copy.storage = is_first ? id : program_[map_[index(copy.storage)]].storage;
      if (sum != nullptr && (sum->apart ? old == sum->in_segment : is_first)) to_add_.push_back({sum->value, old});
    }
    program_.tensors.push_back(std::move(copy));
    map_[index(old)] = id;
    return id;
  }

  struct Sum {
    std::size_t parameter;
    TensorId storage;
    TensorId in_segment;  ///< the final value as the one-micro-batch program named it
    TensorId value;       ///< the final value of the newest micro-batch
    bool apart;           ///< the first value written has other placements than the final one and cannot be added to it
  };
  const Sum& sum_of(TensorId storage) const { return sums_[static_cast<std::size_t>(sum_of_[index(storage)])]; }

  Program& program_;
  std::vector<Instruction> segment_;
  std::size_t tensors_;
  DefUse def_use_;  // of the segment
  std::vector<bool> gradient_storage_;
  std::vector<TensorId> places_;  // storages of activations that no instruction makes: slices of a tensor lie in them
  std::vector<TensorId> map_;     // of the micro-batch being made: tensors of the segment to their copies
  std::vector<Sum> sums_;         // one per trained parameter
  std::vector<int> sum_of_;       // by storage
  std::vector<std::pair<TensorId, TensorId>> to_add_;  // sums, and the gradients of the segment that belong to them
};

}  // namespace

void unroll_micro_batches(Program& program, int micro_batches) {
  if (micro_batches < 1)
    throw UsageError("accumulation over " + std::to_string(micro_batches) + " micro-batches; it must be at least 1");
  Repeater(program).run(micro_batches);
  program.micro_batches = micro_batches;
}

}  // namespace consist
