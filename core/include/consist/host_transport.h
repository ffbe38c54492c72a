// For transports on host memory: messages between the members of a group, collectives on top of them, and texts that members
// exchange before they have a connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/transport.h"

namespace consist {

/// Connections to all other members of a group. Sends to one member arrive in the order in which they were posted, and fill its
/// receives in the order of those; the sizes of a send and its receive are equal (the caller's duty). THREADS: one at a
/// time. Bytes move only while a function of this class runs; every wait moves all bytes that can be moved, in both directions.
/// ERRORS: waits throw PeerError (through Job::blame) when the connection breaks, the job fails or no byte has moved to or from
/// the awaited member for Job::timeout().
class CONSIST_API PointToPoint {
 public:
  /// Names a posted operation: tickets to (or from) one member count up from 1.
  using Ticket = std::uint64_t;

  virtual ~PointToPoint();
  virtual int rank() const noexcept = 0;  ///< within the group
  virtual int size() const noexcept = 0;

  /// The bytes stay the caller's and must not change until the send has finished. At most max_posted may be unfinished per
  /// member.
  virtual Ticket post_send(int to, const void* data, std::size_t bytes) = 0;
  virtual Ticket post_receive(int from, void* data, std::size_t bytes) = 0;
  /// Returns when that operation (and so all earlier ones to or from the member) has finished. A finished send has left the
  /// caller's memory; it need not have arrived.
  virtual void wait_sent(int to, Ticket ticket) = 0;
  virtual void wait_received(int from, Ticket ticket) = 0;

  /// Ends all operations in flight: nothing is written into posted memory any more. Later posts and waits fail.
  virtual void abandon() noexcept = 0;

  /// "rank 3", the member's number in the job; and the group's name.
  virtual std::string name(int member) const = 0;
  virtual const std::string& group() const noexcept = 0;
  /// Largest message, in bytes, that is sent at full speed; larger ones work and are slower.
  virtual std::size_t best_largest_message() const noexcept { return std::numeric_limits<std::size_t>::max(); }

  /// See Communicator.
  virtual std::string verified_path() const = 0;
  virtual std::int64_t bytes_sent() const noexcept = 0;

  static constexpr std::size_t max_posted = 64;
};

/// Exchanges texts: every member gives its own and gets all of them, by member. A group uses a `topic` once. Throws PeerError
/// naming the member that gave none within the job's timeout.
CONSIST_API std::vector<std::string> exchange_texts(Job& job, const GroupRequest& group, const std::string& topic,
                                                    const std::string& own);
/// Gives member 0's text to all members. A group uses a `topic` once. ERRORS: those of exchange_texts().
CONSIST_API std::string share_text(Job& job, const GroupRequest& group, const std::string& topic,
                                   const std::string& text_of_first);

/// Ring collectives over `links`, which move the least possible bytes per member: 2 (n-1)/n of the data for all_reduce, (n-1)/n
/// for reduce_scatter and all_gather, all of it once for broadcast. Sums are made in one order: results are equal to the bit on
/// all members. Data is cut into chunks of `chunk_bytes`, each sent on as soon as it has been summed. A header precedes each
/// call: if members are in different calls, they throw ProgramError naming both, and use none of the bytes.
inline constexpr std::size_t default_chunk_bytes = std::size_t{64} << 10U;
CONSIST_API std::unique_ptr<Communicator> make_ring_communicator(std::unique_ptr<PointToPoint> links,
                                                                 std::size_t chunk_bytes = default_chunk_bytes);

}  // namespace consist
