// The parts into which ops split and concat divide the channels of each head, as their attribute "parts" states them: "128,64"
// for heads of 192 channels. "64*": one part for all heads, which concat repeats beside each head's own and split adds up over
// heads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

struct HeadPart {
  std::int64_t width = 0;  ///< channels
  std::int64_t first = 0;  ///< its first channel within a head
  bool shared = false;     ///< one for all heads
};

/// THREADS: const members from any.
class CONSIST_API HeadParts {
 public:
  static constexpr std::size_t max_parts = 8;

  /// ERRORS: ProgramError unless there are 1 to 8 parts with channels, at least one of each head's own, and those before shared
  /// ones.
  HeadParts(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& shared = {});
  /// ERRORS: the same, and a text that is none.
  static HeadParts parse(std::string_view text);
  std::string text() const;

  const std::vector<HeadPart>& all() const noexcept { return parts_; }
  std::int64_t head_dim() const noexcept { return parts_.back().first + parts_.back().width; }
  /// The number of parts of each head's own, which come first.
  std::size_t own() const noexcept { return own_; }

 private:
  std::vector<HeadPart> parts_;
  std::size_t own_ = 0;
};

}  // namespace consist
