// Messages between the ranks and rank 0's job server, and the frames that carry them: a u32 of the body's bytes, then the body,
// whose first byte is the kind.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "consist/socket.h"
#include "consist/wire.h"

namespace consist {

enum class MessageKind : std::uint8_t {
  // A rank to the server.
  put = 1,    ///< key, value
  get,        ///< request, timeout in ms, key
  barrier,    ///< request, timeout in ms, name
  collect,    ///< request, timeout in ms, name, text
  forget,     ///< key
  heartbeat,  ///< progress
  report,     ///< progress; answers report_please
  blame,      ///< peer, what
  fail,       ///< reason
  leave,      ///< timeout in ms
  gave_up,    ///< how: this rank ends because it heard nothing of rank 0
  // The server to a rank.
  welcome = 64,   ///< the hosts of all ranks, in order
  refused,        ///< reason: this connection cannot be that rank
  answer,         ///< request, found, value or what is wrong
  collected,      ///< request, text of the next rank; before the answer, to rank 0
  report_please,  ///< no fields
  pulse,          ///< progress of rank 0, as often as it tells
  failed,         ///< rank, what
  left,           ///< all ranks have left
};

inline constexpr std::size_t max_message_bytes = std::size_t{4} << 20U;
inline constexpr std::size_t max_key_bytes = 1024;
inline constexpr std::size_t max_value_bytes = max_message_bytes / 2;   ///< of the store
inline constexpr std::size_t max_reason_bytes = max_message_bytes / 4;  ///< why a rank ends
inline constexpr std::size_t max_progress_bytes = 512;
inline constexpr std::size_t max_host_bytes = 255;
/// Bytes of all keys and values that a job's store may hold, with what is being collected.
inline constexpr std::size_t max_store_bytes = std::size_t{256} << 20U;

inline constexpr std::chrono::milliseconds heartbeat_interval{250};
inline constexpr std::string_view job_purpose = "job";

/// A message of that kind, whose fields follow.
network::WireWriter message(MessageKind kind);

/// A connection that carries frames; not thread-safe. Buffers what the socket does not take at once.
class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(network::Socket socket) : socket_(std::move(socket)) {}

  const network::Socket& socket() const noexcept { return socket_; }
  bool is_open() const noexcept { return static_cast<bool>(socket_); }
  void close() noexcept { socket_.close(); }
  bool has_output() const noexcept { return sent_ < output_.size(); }

  /// Adds a frame to the output; flush() sends it.
  void push(std::string_view body);
  /// Sends what the socket takes. False: the other side is gone.
  bool flush() noexcept;
  /// Reads what is there, up to some 100 KB. False: the other side is gone; frames that came before may be left in the buffer.
  bool fill();
  /// The next complete frame's body; valid until the next call of fill(). Throws DataError for a frame of absurd length.
  bool next(std::string_view& body);
  /// No more output; the other side reads the end of the stream after what was sent.
  void shut_down() noexcept;

 private:
  network::Socket socket_;
  std::string input_;
  std::size_t parsed_ = 0;
  std::string output_;
  std::size_t sent_ = 0;
};

/// Time of silence after which a rank counts as dead: the job's timeout, but at least some seconds, so that a busy machine
/// is not taken for a dead one.
std::chrono::milliseconds silence_limit(std::chrono::milliseconds timeout);

/// "rank 2 on host node7"; without the host where it is unknown.
std::string name_rank(int rank, std::string_view host);

/// "1.5 s"; tenths are cut.
std::string seconds_text(std::chrono::milliseconds duration);

}  // namespace consist
