// The op "my_outer_step": what ends a round of DiLoCo, a collective with a kernel of its own.
#include <consist/error.h>
#include <consist/kernel.h>
#include <consist/op.h>
#include <consist/transport.h>

#include <cmath>
#include <string>

namespace {

using namespace consist;

/// Counts the step. Where it ends a round, replicas agree on d, the mean of what each has moved away from the anchor, and all
/// make the outer step: momentum := mu momentum + d; parameter := anchor - rate (d + mu momentum), Nesterov's form. In any other
/// step nothing is sent.
class OuterStepKernel final : public Kernel {
 public:
  OuterStepKernel(const Attributes& a, Communicator* communicator, int ranks)
      : every_(a.integer("every")),
        rate_(static_cast<float>(a.real("rate"))),
        mu_(static_cast<float>(a.real("momentum"))),
        communicator_(communicator),
        ranks_(ranks) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    float& steps = *in[0].as<float>();  // the same on all replicas
    steps += 1;
    if (std::fmod(steps, static_cast<float>(every_)) != 0) return;
    for (std::size_t p = 1; p < in.size(); p += 3) {
      auto *parameter = in[p].as<float>(), *momentum = in[p + 2].as<float>();
      const auto* anchor = in[p + 1].as<float>();
      const std::int64_t count = in[p].shape.elements();
      for (std::int64_t i = 0; i < count; ++i) parameter[i] = (anchor[i] - parameter[i]) / static_cast<float>(ranks_);
      communicator_->all_reduce(parameter, count, DType::f32, queue);
      for (std::int64_t i = 0; i < count; ++i) {
        const float moved = parameter[i];
        momentum[i] = mu_ * momentum[i] + moved;
        parameter[i] = anchor[i] - rate_ * (moved + mu_ * momentum[i]);
      }
    }
  }
  void check() override { communicator_->check(); }

 private:
  std::int64_t every_;
  float rate_, mu_;
  Communicator* communicator_;
  int ranks_;
};

/// Inputs: steps that are done, then parameter, anchor and momentum, f32, of each; outputs: steps, then parameter and momentum,
/// in place.
class OuterStep final : public Op {
 public:
  std::string_view name() const noexcept override { return "my_outer_step"; }
  bool is_collective() const noexcept override { return true; }
  bool changes_placement() const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    attributes.axes("axis");
    attributes.real("rate");
    attributes.real("momentum");
    if (attributes.integer("every") < 1) throw ProgramError("my_outer_step: a round has a step at least");
    if (in.size() % 3 != 1 || !in[0]) throw ProgramError("my_outer_step: its inputs are a count and triples");
    Types out{in[0]};
    for (std::size_t p = 1; p < in.size(); p += 3) {
      if (!in[p] || in[p]->dtype != DType::f32 || in[p + 1] != in[p] || in[p + 2] != in[p])
        throw ProgramError("my_outer_step: a parameter, its anchor and its momentum must be f32 and of one shape");
      out.insert(out.end(), {in[p], in[p + 2]});
    }
    return out;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes&) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
    for (std::size_t p = 1; p < in.size(); p += 3) {
      if (axis.inputs[p].is_partial()) throw ProgramError("my_outer_step: a parameter is no sum");
      axis.inputs[p + 1] = axis.inputs[p + 2] = axis.inputs[p];
      axis.outputs.insert(axis.outputs.end(), 2, axis.inputs[p]);
    }
  }
  int updates_in_place(int output) const noexcept override {
    return output == 0 ? 0 : output % 2 == 1 ? 1 + output / 2 * 3 : output / 2 * 3;
  }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator,
                                                 int ranks) const override {
    // A GPU's queue runs ahead of the host, which therefore cannot leave a message out by what a tensor holds.
    if (request.device != "cpu")
      throw UnavailableError("my-diloco works on the device cpu, not on '" + std::string(request.device) + "'");
    return std::make_unique<OuterStepKernel>(request.attributes, communicator, ranks);
  }
};

const Op& outer = registry().add(std::make_unique<OuterStep>());

}  // namespace
