// Lion (Chen et al., 2023, arXiv 2302.06675) by an op of its own, which lies in the plugin "lion-and-muon" of kind kernels.
#include <consist/optimizer.h>
#include <consist/plugin.h>

#include <string>

namespace {

using namespace consist;

class MyLion final : public Optimizer {
 public:
  explicit MyLion(const Options& options) : beta1_(options.real("beta1")), beta2_(options.real("beta2")) {}
  std::vector<OptimizerState> states(const Parameter&, const Shape&) const override { return {"momentum"}; }
  std::size_t scalar_count() const override { return 1; }
  void write_scalars(std::int64_t, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "my_lion", scalars, clip, group, {{"beta1", beta1_}, {"beta2", beta2_}});
  }
  std::string describe() const override { return "my Lion, betas " + std::to_string(beta1_) + " and " + std::to_string(beta2_); }

 private:
  double beta1_, beta2_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, MyLion, "my-lion", "1.0.0", "Lion: the sign of an interpolated momentum");
CONSIST_PLUGIN_OPTIONS({"beta1", consist::OptionKind::real, "0.9", "of the update", "0..<1"},
                       {"beta2", consist::OptionKind::real, "0.99", "of the momentum", "0..<1"});
