// RingCommunicator: messages between two members, alone and in groups.
#include <algorithm>
#include <utility>

#include "core/collectives/ring.h"

namespace consist {

using Ticket = PointToPoint::Ticket;

void RingCommunicator::send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue /*queue*/) {
  const auto* const base = static_cast<const std::byte*>(data);
  if (in_group_) return sends_.push_back({.from = base, .count = count, .dtype = dtype, .member = to});
  const std::size_t bytes = checked(count) * size_of(dtype);
  own_ = head_of(Call::message, sent_to_.at(static_cast<std::size_t>(to))++, count, dtype);
  if (bytes == 0) return;
  send_head(to);
  stream(
      bytes, [&](std::size_t at, std::size_t size) { return links_->post_send(to, base + at, size); },
      [&](Ticket ticket) { links_->wait_sent(to, ticket); });
}

void RingCommunicator::receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue /*queue*/) {
  auto* const base = static_cast<std::byte*>(data);
  if (in_group_) return receives_.push_back({.to = base, .count = count, .dtype = dtype, .member = from});
  const std::size_t bytes = checked(count) * size_of(dtype);
  own_ = head_of(Call::message, received_from_.at(static_cast<std::size_t>(from))++, count, dtype);
  if (bytes == 0) return;
  const Ticket head = expect_head(from);
  bool checked_head = false;
  stream(
      bytes, [&](std::size_t at, std::size_t size) { return links_->post_receive(from, base + at, size); },
      [&](Ticket ticket) {
        if (!std::exchange(checked_head, true)) check_head(from, head);
        links_->wait_received(from, ticket);
      });
}

void RingCommunicator::group_begin(NativeQueue /*queue*/) {
  in_group_ = true;
  sends_.clear();
  receives_.clear();
}

// Collectives within a group were made when they were called; each waits for its own messages alone. A send and a receive go side by
// side: one behind the other, members that all send first could block each other.
void RingCommunicator::group_end(NativeQueue queue) {
  in_group_ = false;
  const std::size_t both = std::min(sends_.size(), receives_.size());
  for (std::size_t k = 0; k < both; ++k) exchange(sends_[k], receives_[k]);
  for (std::size_t k = both; k < sends_.size(); ++k) send(sends_[k].from, sends_[k].count, sends_[k].dtype, sends_[k].member, queue);
  for (std::size_t k = both; k < receives_.size(); ++k)
    receive(receives_[k].to, receives_[k].count, receives_[k].dtype, receives_[k].member, queue);
}

void RingCommunicator::exchange(const Message& sent, const Message& received) {
  const std::size_t out = checked(sent.count) * size_of(sent.dtype), in = checked(received.count) * size_of(received.dtype);
  own_ = head_of(Call::message, sent_to_.at(static_cast<std::size_t>(sent.member))++, sent.count, sent.dtype);
  const CallHead head_in =
      head_of(Call::message, received_from_.at(static_cast<std::size_t>(received.member))++, received.count, received.dtype);
  Ticket last_send = 0, last_receive = 0;
  const Ticket head = in > 0 ? expect_head(received.member) : 0;
  if (out > 0) {
    send_head(sent.member);
    last_send = links_->post_send(sent.member, sent.from, std::min(chunk_bytes_, out));
  }
  std::size_t sends = 1, receives = 0;
  bool checked_head = in == 0;
  const auto check_once = [&] {
    if (checked_head) return;
    checked_head = true;
    check_head(received.member, head, head_in);
  };
  for (std::size_t at = 0; at < std::max(out, in); at += chunk_bytes_) {
    if (at < in) {
      if (++receives > window) {
        check_once();
        links_->wait_received(received.member, last_receive + 1 - window);
      }
      last_receive = links_->post_receive(received.member, received.to + at, std::min(chunk_bytes_, in - at));
    }
    if (at > 0 && at < out) {
      if (++sends > window) links_->wait_sent(sent.member, last_send + 1 - window);
      last_send = links_->post_send(sent.member, sent.from + at, std::min(chunk_bytes_, out - at));
    }
  }
  check_once();
  if (in > 0) links_->wait_received(received.member, last_receive);
  if (out > 0) links_->wait_sent(sent.member, last_send);
}

/// Both ends cut alike. In one piece, links whose messages show no progress until they are whole could run into the timeout.
template <typename Post, typename Wait>
void RingCommunicator::stream(std::size_t bytes, const Post& post, const Wait& wait) {
  Ticket last = 0;
  std::size_t posted = 0;
  for (std::size_t at = 0; at < bytes; at += chunk_bytes_) {
    if (++posted > window) wait(last + 1 - window);
    last = post(at, std::min(chunk_bytes_, bytes - at));
  }
  if (posted > 0) wait(last);
}

}  // namespace consist
