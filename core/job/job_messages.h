// Messages between the ranks and rank 0's job server, and the frames that carry them: a u32 of the body's bytes, a u32 of the
// job's generation, then the body, whose first byte is the kind.
//
// A rank that leads its host carries the messages of the host's other ranks: upwards as `relayed` with the rank that speaks,
// downwards as `relayed` with those that are meant.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/socket.h"
#include "consist/wire.h"

namespace consist {

enum class MessageKind : std::uint8_t {
  // A rank to the server.
  put = 1,    ///< key, value
  get,        ///< request, timeout in ms, key
  barrier,    ///< request, timeout in ms, name
  deliver,    ///< ranks (none: all), name, 1 in the last part and 0 before, bytes
  missed,     ///< ranks that have not come to a collective in time, what
  heartbeat,  ///< progress
  report,     ///< progress, ranks that it waits for in a collective; answers report_please
  blame,      ///< peer, what
  fail,       ///< reason
  leave,      ///< timeout in ms
  gave_up,    ///< rank, ms: the sender ends because it heard nothing of that rank, its leader or rank 0, for so long
  moved,      ///< no fields; the last message of a connection: the sender goes on through its leader
  // A leader to the server.
  arrived = 48,  ///< rank, which is connected to this leader now
  gone,          ///< rank, how: its connection to the leader has ended
  // The server to a rank.
  welcome = 64,   ///< hosts: their count and names; the host of each rank, by its place among them
  refused,        ///< reason: this connection cannot be that rank
  lead,           ///< rank, port: go on through that leader
  answer,         ///< request, found, value or what is wrong
  delivered,      ///< rank that gave it, name, 1 in the last part and 0 before, bytes
  report_please,  ///< no fields
  pulse,          ///< rank, its progress: of rank 0 as often as it tells, of a leader to those that it leads
  failed,         ///< rank, what
  left,           ///< all ranks have left
  // Both ways between a leader and the server.
  relayed = 128,  ///< upwards: rank, message; downwards: ranks (none: all that it leads, and itself), message
};

inline constexpr std::size_t max_message_bytes = std::size_t{4} << 20U;
inline constexpr std::size_t max_frame_bytes = max_message_bytes + (std::size_t{1} << 20U);  ///< with what `relayed` adds
inline constexpr std::size_t part_bytes = std::size_t{256} << 10U;  ///< of what ranks give to collectives, in one message
inline constexpr std::size_t max_key_bytes = 1024;
inline constexpr std::size_t max_value_bytes = max_message_bytes / 2;   ///< of the store
inline constexpr std::size_t max_reason_bytes = max_message_bytes / 4;  ///< why a rank ends
inline constexpr std::size_t max_progress_bytes = 512;
inline constexpr std::size_t max_host_bytes = 255;
inline constexpr std::size_t max_machine_bytes = 128;
/// Bytes of all keys and values that a job's store may hold.
inline constexpr std::size_t max_store_bytes = std::size_t{256} << 20U;

inline constexpr std::chrono::milliseconds heartbeat_interval{250};
/// For the last messages of a rank that ends.
inline constexpr std::chrono::milliseconds farewell_time{1000};
/// A turn of a thread's loop that comes this late means that the process itself was stopped: nobody else's silence counts then.
inline constexpr std::chrono::milliseconds own_stall{2000};
inline constexpr std::string_view job_purpose = "job";
/// The purpose of connections to a leader.
std::string purpose_of_leader(int leader);

/// The identity that a rank states in its handshake with rank 0.
struct JoinClaim {
  int generation = 0;
  int rank = -1;
  int size = 0;
  std::string host;
  std::string machine;     ///< JobAddress::machine
  std::uint16_t port = 0;  ///< where it takes in the other ranks of its host; 0: it leads none

  std::string text() const;
  static JoinClaim from(std::string_view text);  ///< throws DataError
};

/// A message of that kind, whose fields follow.
network::WireWriter message(MessageKind kind);

/// A list of ranks as a field of a message.
void write_ranks(network::WireWriter& writer, std::span<const int> ranks);
std::vector<int> read_ranks(network::WireReader& reader);

/// "rank 3", "ranks 3, 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more".
std::string list_ranks(std::span<const int> ranks);

/// A connection that carries frames of one generation of the job; not thread-safe. Buffers what the socket does not take at once.
class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(network::Socket socket, int generation = 0) : socket_(std::move(socket)), generation_(generation) {}

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
  /// The next complete frame's body; valid until the next call of fill(). Throws DataError for a frame of absurd length or of
  /// another generation.
  bool next(std::string_view& body);
  /// No more output; the other side reads the end of the stream after what was sent.
  void shut_down() noexcept;

 private:
  network::Socket socket_;
  int generation_ = 0;
  std::string input_;
  std::size_t parsed_ = 0;
  std::string output_;
  std::size_t sent_ = 0;
};

/// Ends the streams after what is still to be sent, and waits until the other sides end too, or the deadline.
void drain(std::span<FrameStream* const> streams, network::Deadline deadline);

/// Time of silence after which a rank counts as dead: the job's timeout, but at least some seconds, so that a busy machine
/// is not taken for a dead one.
std::chrono::milliseconds silence_limit(std::chrono::milliseconds timeout);

/// "rank 2 on host node7"; without the host where it is unknown.
std::string name_rank(int rank, std::string_view host);

/// "1.5 s"; tenths are cut.
std::string seconds_text(std::chrono::milliseconds duration);

}  // namespace consist
