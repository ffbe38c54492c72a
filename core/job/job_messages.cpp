#include "core/job/job_messages.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "consist/error.h"

namespace consist {

std::string JoinClaim::text() const {
  return network::WireWriter()
      .integer(static_cast<std::int32_t>(generation))
      .integer(static_cast<std::int32_t>(rank))
      .integer(static_cast<std::int32_t>(size))
      .text(std::string_view(host).substr(0, max_host_bytes))
      .text(std::string_view(machine).substr(0, max_machine_bytes))
      .integer(port)
      .take();
}

JoinClaim JoinClaim::from(std::string_view text) {
  network::WireReader reader(text);
  JoinClaim claim;
  claim.generation = reader.integer<std::int32_t>();
  claim.rank = reader.integer<std::int32_t>();
  claim.size = reader.integer<std::int32_t>();
  claim.host = reader.text().substr(0, max_host_bytes);
  claim.machine = reader.text().substr(0, max_machine_bytes);
  claim.port = reader.integer<std::uint16_t>();
  return claim;
}

network::WireWriter message(MessageKind kind) {
  return std::move(network::WireWriter().integer(static_cast<std::uint8_t>(kind)));
}

std::string purpose_of_leader(int leader) {
  return std::string(job_purpose) + "/leader/" + std::to_string(leader);
}

void write_ranks(network::WireWriter& writer, std::span<const int> ranks) {
  writer.integer(static_cast<std::uint32_t>(ranks.size()));
  for (const int rank : ranks) writer.integer(static_cast<std::int32_t>(rank));
}

std::vector<int> read_ranks(network::WireReader& reader) {
  std::vector<int> ranks;
  for (auto left = reader.integer<std::uint32_t>(); left > 0; --left) ranks.push_back(reader.integer<std::int32_t>());
  return ranks;
}

std::string list_ranks(std::span<const int> ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

namespace {

struct FrameHead {
  std::uint32_t bytes = 0;
  std::int32_t generation = 0;
};

}  // namespace

void FrameStream::push(std::string_view body) {
  if (body.size() > max_frame_bytes) throw Error("a message of the job is longer than " + std::to_string(max_frame_bytes));
  const FrameHead head{static_cast<std::uint32_t>(body.size()), generation_};
  output_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  output_.append(body);
}

bool FrameStream::flush() noexcept {
  constexpr std::size_t most_sent = std::size_t{1} << 20U;  // kept in front of what is still to be sent
  while (sent_ < output_.size()) {
    const network::Moved moved = network::try_send(socket_, std::as_bytes(std::span(output_)).subspan(sent_));
    if (moved.closed) return false;
    sent_ += moved.bytes;
    if (moved.bytes == 0) {
      if (sent_ > most_sent && 2 * sent_ > output_.size()) output_.erase(0, std::exchange(sent_, 0));
      return true;
    }
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
    if (moved.bytes < sizeof buffer) return true;  // that was all
  }
  return true;
}

bool FrameStream::next(std::string_view& body) {
  FrameHead head;
  const std::string_view rest = std::string_view(input_).substr(parsed_);
  if (rest.size() < sizeof(head)) return false;
  std::memcpy(&head, rest.data(), sizeof(head));
  if (head.generation != generation_) {
    throw DataError("a message of generation " + std::to_string(head.generation) + " of the job, which is in generation " +
                    std::to_string(generation_));
  }
  if (head.bytes == 0 || head.bytes > max_frame_bytes) throw DataError("a frame of " + std::to_string(head.bytes) + " bytes");
  if (rest.size() < sizeof(head) + head.bytes) return false;
  body = rest.substr(sizeof(head), head.bytes);
  parsed_ += sizeof(head) + head.bytes;
  return true;
}

void FrameStream::shut_down() noexcept {
  if (socket_) shutdown(socket_.fd(), SHUT_WR);
}

void drain(std::span<FrameStream* const> streams, network::Deadline deadline) {
  bool busy = true;
  while (busy && network::Clock::now() < deadline) {
    busy = false;
    for (FrameStream* stream : streams) {
      if (!stream->is_open()) continue;
      if (!stream->flush()) {
        stream->close();
      } else if (stream->has_output()) {
        busy = true;
      } else {
        // The end of the stream after the last message; closed when the other side ends too, for closing a socket with unread
        // input would reset the connection and could take the last message with it.
        stream->shut_down();
        if (stream->fill())
          busy = true;
        else
          stream->close();
      }
    }
    if (busy) poll(nullptr, 0, 5);
  }
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
