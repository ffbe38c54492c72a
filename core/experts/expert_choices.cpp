#include "core/experts/expert_choices.h"

#include <algorithm>
#include <span>
#include <string>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/op.h"

namespace consist {
namespace {

constexpr const char *who = "count_expert_choices", *name = "expert_choices";

/// The zeros that a rank without routers adds to the sum.
TensorId no_choices(Program& segment, const Shape& shape) {
  if (segment.instructions.empty()) return no_tensor;
  Builder builder(segment);
  builder.tag = segment.instructions.front().tag;
  builder.tag.inserted_by = who;
  const TensorId zeros = builder.constant("no_expert_choices", shape, [](std::span<float> out) { std::ranges::fill(out, 0.0F); });
  return builder.emit_one("cast", {zeros}, {{"dtype", std::string(name_of(DType::f32))}}, name);
}

}  // namespace

void count_expert_choices(Program& segment) {
  if (segment.routers.empty()) return;
  const auto rows = static_cast<std::int64_t>(segment.routers.size());
  const std::int64_t experts = std::ranges::max_element(segment.routers, {}, &Router::experts)->experts;
  const DefUse def_use(segment);
  TensorId counts = no_tensor;
  Inserter inserter(segment);
  for (std::int64_t row = 0; row < rows; ++row) {
    const TensorId statistics = segment.routers[static_cast<std::size_t>(row)].statistics;
    if (statistics == no_tensor) continue;
    // At once: an instruction that adds up the statistics of routers may overwrite them.
    inserter.after(def_use.producer(statistics), [&](Builder& builder) {
      builder.tag.inserted_by = who;
      counts =
          builder.emit_one("count_choices", {statistics, counts}, {{"row", row}, {"rows", rows}, {"experts", experts}}, name);
    });
  }
  inserter.apply();
  segment.add_output(StepOutput::Kind::expert_choices, counts != no_tensor ? counts : no_choices(segment, {rows, experts}));
}

}  // namespace consist
