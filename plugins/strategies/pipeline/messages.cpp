#include "plugins/strategies/pipeline/messages.h"

#include <string>

namespace consist::pipeline {

void emit_send(Builder& builder, TensorId tensor, int axis, Lane lane) {
  builder.emit("send", {tensor}, {{"axis", AxisSet(axis)}, {"lane", static_cast<std::int64_t>(lane)}});
}

TensorId emit_receive(Builder& builder, TensorId like, int axis, Lane lane) {
  const Tensor sent = builder[like];
  Attributes attributes{
      {"axis", AxisSet(axis)}, {"lane", static_cast<std::int64_t>(lane)}, {"dtype", std::string(name_of(sent.dtype))}};
  for (int dim = 0; dim < sent.shape.rank(); ++dim) attributes.set("extent" + std::to_string(dim), sent.shape[dim]);
  const TensorId received = builder.emit_one("receive", {}, std::move(attributes), sent.name);
  builder.program()[received].placements = sent.placements;
  builder.program()[received].role = sent.role;
  return received;
}

}  // namespace consist::pipeline
