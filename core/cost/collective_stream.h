// Collectives and messages that a rank's program asks of other ranks, in order, and what each of them waits for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// One collective or message of a rank.
struct CollectiveCall {
  /// By number in CollectiveStream::queues: how many calls of that queue are over before this one starts.
  using Before = std::vector<std::int32_t>;

  Queue queue;
  /// Op, attributes and tensors (name, dtype, bytes on one rank). Equal at all ends of a call that can succeed.
  std::string what;
  std::string text;  ///< the instruction, for people
  Before before;
  bool operator==(const CollectiveCall&) const = default;
};

struct CollectiveStream {
  QueueTable queues;                  ///< those of the calls, and compute
  std::vector<CollectiveCall> calls;  ///< in program order
  bool operator==(const CollectiveStream&) const = default;
};

/// A planned program (insert_waits) also tells what calls wait for; without waits only the order within each queue is known.
CONSIST_API CollectiveStream collective_stream(const Program& program);

/// Equal if and only if ranks make the same calls in the same order and wait for the same before them: 64 hexadecimal digits.
CONSIST_API std::string fingerprint_of(const CollectiveStream& stream);

/// A stream as bytes, for other ranks. decode throws DataError.
CONSIST_API std::string encode(const CollectiveStream& stream);
CONSIST_API CollectiveStream decode_stream(std::string_view bytes);

/// Checks that all ranks complete: `streams[r]` is what rank r of `mesh` does. Every collective needs all members of its group at
/// the same call at the head of their queues, every message its receiver, as if nothing were buffered on the way. `names[r]` is
/// the number by which messages name rank r; empty: r. Throws ProgramError naming two ranks and their first calls that differ, or
/// the calls at which the ranks block each other.
CONSIST_API void verify_streams(const Mesh& mesh, std::span<const CollectiveStream* const> streams,
                                std::span<const int> names = {});

/// The same of programs: `programs[r]` is what rank r runs, all over the same mesh.
CONSIST_API void verify_collectives(std::span<const Program* const> programs);

}  // namespace consist
