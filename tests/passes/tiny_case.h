// Steps of a tiny model, compiled without plugins, for tests of passes.
#pragma once

#include <string>
#include <vector>

#include "consist/edit.h"
#include "core/compile/compile.h"
#include "tests/program/plain_precision.h"
#include "tests/program/planned.h"
#include "tests/program/tiny_model.h"

namespace consist::test {

/// Splits the batch; gradients are left for the optimizer pass to reduce, or reduced in one bucket at the end.
class DataParallel final : public ParallelStrategy {
 public:
  explicit DataParallel(bool bucket) : bucket_(bucket) {}
  AxisRequest axis() const override {
    return {.name = "data", .takes_rest = true, .splits_batch = true, .most_axes = Mesh::max_axes};
  }
  void partition(Program& p, AxisSet axes) const override {
    for (Tensor& t : p.tensors) {
      if (t.role == Role::input && !t.state) t.placements.set(axes, Placement::shard(0));
    }
  }
  void schedule(Program& p, AxisSet axes) const override {
    if (!bucket_) return;
    std::vector<TensorId> gradients;
    for (const Parameter& parameter : p.parameters) gradients.push_back(parameter.gradient);
    pack(p, gradients, "bucket");
    Inserter inserter(p);
    inserter.after(static_cast<InstructionId>(p.instructions.size()) - 1, [&](Builder& b) {
      b.tag.inserted_by = "test";
      const auto reduced = b.all_reduce(gradients, axes);
      for (std::size_t i = 0; i < reduced.size(); ++i) p.parameters[i].gradient = reduced[i];
    });
    inserter.apply();
  }

 private:
  bool bucket_;
};

struct Case {
  TinyModel model;
  PlainPrecision precision;
  DataParallel strategy;
  CompileRequest request;
  Layout layout;

  explicit Case(int ranks, int accumulation = 1, bool bucket = true, TinyShape shape = {}, DTypes dtypes = {})
      : model(shape), precision(dtypes), strategy(bucket) {
    request = {.architecture = &model,
               .precision = &precision,
               .strategies = {{"data", &strategy, 0}},
               .ranks = ranks,
               .micro_batch = 2,
               .sequence = 4,
               .accumulation = accumulation,
               .machine = reference_machine()};
    layout = lay_out(request.strategies, ranks);
  }
  Program step() { return compile_step(request, layout); }
};

}  // namespace consist::test
