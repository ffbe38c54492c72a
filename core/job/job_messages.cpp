#include "core/job/job_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "consist/error.h"

namespace consist {

network::WireWriter message(MessageKind kind) {
  return std::move(network::WireWriter().integer(static_cast<std::uint8_t>(kind)));
}

void FrameStream::push(std::string_view body) {
  if (body.size() > max_message_bytes) throw Error("a message of the job is longer than " + std::to_string(max_message_bytes));
  const auto length = static_cast<std::uint32_t>(body.size());
  output_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  output_.append(body);
}

bool FrameStream::flush() noexcept {
  while (sent_ < output_.size()) {
    const network::Moved moved = network::try_send(socket_, std::as_bytes(std::span(output_)).subspan(sent_));
    if (moved.closed) return false;
    if (moved.bytes == 0) return true;
    sent_ += moved.bytes;
  }
  output_.clear();
  sent_ = 0;
  return true;
}

bool FrameStream::fill() {
  input_.erase(0, std::exchange(parsed_, 0));
  constexpr std::size_t turn_bytes = 100'000;
  for (std::size_t total = 0; total < turn_bytes;) {
    char buffer[16'384];
    const network::Moved moved = network::try_receive(socket_, std::as_writable_bytes(std::span(buffer)));
    input_.append(buffer, moved.bytes);
    total += moved.bytes;
    if (moved.closed) return false;
    if (moved.bytes == 0) return true;
  }
  return true;
}

bool FrameStream::next(std::string_view& body) {
  std::uint32_t length = 0;
  const std::string_view rest = std::string_view(input_).substr(parsed_);
  if (rest.size() < sizeof(length)) return false;
  std::memcpy(&length, rest.data(), sizeof(length));
  if (length == 0 || length > max_message_bytes) throw DataError("a frame of " + std::to_string(length) + " bytes");
  if (rest.size() < sizeof(length) + length) return false;
  body = rest.substr(sizeof(length), length);
  parsed_ += sizeof(length) + length;
  return true;
}

void FrameStream::shut_down() noexcept {
  if (socket_) shutdown(socket_.fd(), SHUT_WR);
}

std::chrono::milliseconds silence_limit(std::chrono::milliseconds timeout) {
  return std::max(timeout, std::chrono::milliseconds(5000));
}

std::string seconds_text(std::chrono::milliseconds duration) {
  const auto tenths = duration.count() / 100;
  return std::to_string(tenths / 10) + (tenths % 10 != 0 ? "." + std::to_string(tenths % 10) : "") + " s";
}

std::string name_rank(int rank, std::string_view host) {
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " on host " + std::string(host));
}

}  // namespace consist
