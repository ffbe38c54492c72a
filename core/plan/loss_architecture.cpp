#include "core/plan/loss_architecture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"

namespace consist {
namespace {

/// Takes the instruction of the model's own loss out of the program.
ModelHead take_head(Program& program, TensorId loss) {
  const auto last = std::find_if(program.instructions.rbegin(), program.instructions.rend(), [&](const Instruction& i) {
    return std::find(i.outputs.begin(), i.outputs.end(), loss) != i.outputs.end();
  });
  if (last == program.instructions.rend() || last->op->vocabulary_use() != VocabularyUse::loss) {
    throw UsageError(
        "--loss needs a model whose loss is made by an op that says so (VocabularyUse::loss, such as layers::lm_head_loss); "
        "this one's is made by another");
  }
  const ModelHead head{last->inputs[0], last->inputs[1], last->inputs[2]};
  program.instructions.erase(std::next(last).base());
  return head;
}

/// Outputs of a program beside its loss, to be put back behind a frozen model, whose build() adds its own.
struct LossesBeside {
  std::vector<StepOutput> outputs;
  std::vector<Router> routers;

  explicit LossesBeside(Program& program) : outputs(std::exchange(program.outputs, {})), routers(program.routers) {}
  void put_back(Program& program) {
    program.outputs = std::move(outputs);
    program.routers = std::move(routers);
  }
};

/// Makes the parameters from `first` on those of the frozen model. One that the trained model has with the same values, since an
/// adapter froze it, is read in its place. Returns what is read in the places of dropped tensors.
std::map<TensorId, TensorId> freeze_from(Program& program, std::size_t first, const FoundFrozen& model) {
  std::map<std::string, const Parameter*, std::less<>> trained;
  for (std::size_t k = 0; k < first; ++k) trained.emplace(program.parameters[k].name, &program.parameters[k]);
  std::map<TensorId, TensorId> instead;
  std::vector<Parameter> kept(program.parameters.begin(), program.parameters.begin() + static_cast<std::ptrdiff_t>(first));
  for (std::size_t k = first; k < program.parameters.size(); ++k) {
    Parameter p = program.parameters[k];
    const auto same = trained.find(p.name);
    if (model.is_trained_model && same != trained.end() && !same->second->trainable) {
      instead[p.tensor] = same->second->tensor;
      continue;
    }
    p.name = program[p.tensor].name = model.name + "." + p.name;
    p.model = model.name;
    p.fixed = true;
    p.trainable = false;
    kept.push_back(std::move(p));
  }
  program.parameters = std::move(kept);
  for (Instruction& i : program.instructions) {
    for (TensorId& input : i.inputs) {
      if (const auto found = instead.find(input); found != instead.end()) input = found->second;
    }
  }
  for (const auto& [dropped, by] : instead) {
    program[dropped].state = false;  // nobody reads it
    program[dropped].role = Role::activation;
  }
  return instead;
}

}  // namespace

LossArchitecture::LossArchitecture(std::shared_ptr<const Architecture> trained, std::shared_ptr<const Loss> loss,
                                   std::vector<FoundFrozen> frozen)
    : trained_(std::move(trained)), loss_(std::move(loss)), frozen_(std::move(frozen)), sizes_(trained_->sizes()) {
  for (const FoundFrozen& model : frozen_) {
    const ModelSizes of = model.architecture->sizes();
    if (of.vocabulary != sizes_.vocabulary) {
      throw UsageError("the loss's model '" + model.name + "' has a vocabulary of " + std::to_string(of.vocabulary) +
                       " tokens, the trained model one of " + std::to_string(sizes_.vocabulary) +
                       ": they must read the same tokens; choose models of one tokenizer");
    }
    sizes_.matmul_parameters += of.matmul_parameters / 3;  // forward alone, of forward and the two products of backward
    if (of.max_sequence > 0 && (sizes_.max_sequence == 0 || of.max_sequence < sizes_.max_sequence))
      sizes_.max_sequence = of.max_sequence;
  }
}

ModelHead LossArchitecture::build_frozen(Builder& builder, const FoundFrozen& model, TensorId ids, TensorId targets) const {
  Program& program = builder.program();
  LossesBeside beside(program);
  const std::size_t first = program.parameters.size(), constants = program.constants.size();
  ModelHead head = take_head(program, model.architecture->build(builder, ids, targets, 1));
  beside.put_back(program);
  for (std::size_t k = constants; k < program.constants.size(); ++k) {
    std::string& name = program[program.constants[k].tensor].name;
    name = model.name + "." + name;
  }
  const std::map<TensorId, TensorId> instead = freeze_from(program, first, model);
  if (const auto found = instead.find(head.weight); found != instead.end()) head.weight = found->second;
  return head;
}

TensorId LossArchitecture::build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const {
  Program& program = builder.program();
  const ModelHead trained = take_head(program, trained_->build(builder, ids, targets, loss_scale));
  const Tag tag = builder.tag;
  std::vector<ModelHead> frozen;
  for (const FoundFrozen& model : frozen_) frozen.push_back(build_frozen(builder, model, ids, targets));
  builder.tag = tag;
  program.loss = loss_->build(builder, trained, frozen, loss_scale);
  remove_dead(program);  // such as the counts of targets of frozen models
  return program.loss;
}

}  // namespace consist
