#include "core/reference/moe_sends.h"

#include <algorithm>
#include <vector>

namespace consist::reference {

Values moe_send(const Value& x, const Value& experts, const Value& weights, std::int64_t ranks, std::int64_t room,
                std::int64_t count) {
  const std::int64_t c = x.shape.last(), choices = experts.shape.last(), tokens = experts.shape.rows(), held = count / ranks;
  Value sent = zeros(x.dtype, {1, ranks, room, c}), sent_experts = zeros(DType::i32, {1, ranks, room, choices}),
        sent_weights = zeros(DType::f32, {1, ranks, room, choices}),
        slots = zeros(DType::i32, {experts.shape[0], experts.shape[1], ranks}), overflow = zeros(DType::f32, {});
  std::fill(sent_experts.data.begin(), sent_experts.data.end(), -1);
  std::fill(slots.data.begin(), slots.data.end(), -1);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t slot = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      bool any = false;
      for (std::int64_t j = 0; j < choices; ++j) any |= static_cast<std::int64_t>(experts.at(token * choices + j)) / held == rank;
      if (!any) continue;
      if (slot == room) {
        overflow.data[0] += 1;
        continue;
      }
      const std::int64_t place = rank * room + slot;
      for (std::int64_t i = 0; i < c; ++i) sent.at(place * c + i) = x.at(token * c + i);
      for (std::int64_t j = 0; j < choices; ++j) {
        sent_experts.at(place * choices + j) = experts.at(token * choices + j);
        sent_weights.at(place * choices + j) = weights.at(token * choices + j);
      }
      slots.at(token * ranks + rank) = static_cast<double>(slot++);
    }
  }
  return {sent, sent_experts, sent_weights, slots, overflow};
}

Value moe_return(const Value& rows, const Value& slots) {
  const std::int64_t c = rows.shape.last(), room = rows.shape[2], ranks = slots.shape.last();
  Value y = zeros(rows.dtype, {slots.shape[0], slots.shape[1], c});
  for (std::int64_t token = 0; token < slots.shape.rows(); ++token) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const auto slot = static_cast<std::int64_t>(slots.at(token * ranks + rank));
      for (std::int64_t i = 0; slot >= 0 && i < c; ++i) y.at(token * c + i) += rows.at((rank * room + slot) * c + i);
    }
  }
  return y;
}

Value moe_return_grad(const Value& dy, const Value& slots, std::int64_t room) {
  const std::int64_t c = dy.shape.last(), ranks = slots.shape.last();
  Value rows = zeros(dy.dtype, {1, ranks, room, c});
  for (std::int64_t token = 0; token < slots.shape.rows(); ++token) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const auto slot = static_cast<std::int64_t>(slots.at(token * ranks + rank));
      for (std::int64_t i = 0; slot >= 0 && i < c; ++i) rows.at((rank * room + slot) * c + i) = dy.at(token * c + i);
    }
  }
  return rows;
}

Values moe_send_grad(const Value& dsent, const Value& dsent_weights, const Value& slots, const Value& experts,
                     std::int64_t count) {
  const std::int64_t choices = experts.shape.last(), ranks = slots.shape.last(), room = dsent.shape[2];
  Value dweights = zeros(DType::f32, experts.shape);
  for (std::int64_t pair = 0; pair < experts.shape.elements(); ++pair) {
    const std::int64_t rank = static_cast<std::int64_t>(experts.at(pair)) / (count / ranks);
    const auto slot = static_cast<std::int64_t>(slots.at(pair / choices * ranks + rank));
    if (slot >= 0) dweights.at(pair) = dsent_weights.at((rank * room + slot) * choices + pair % choices);
  }
  return {moe_return(dsent, slots), dweights};
}

}  // namespace consist::reference
