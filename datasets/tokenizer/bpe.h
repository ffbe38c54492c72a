// Byte-pair encoding (Sennrich et al., 2016) over bytes, as GPT-2 and its successors use it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace consist::tokenizer {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
};
template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

/// Immutable once made; encode() may be called from several threads.
class Bpe {
 public:
  /// `vocabulary`: tokens as raw bytes (already translated back from byte-level characters) to ids. `merges`: pairs of such
  /// tokens, best first. With `ignore_merges` a piece that is a token as a whole is that token, whatever the merges. Throws
  /// DataError for a byte that has no token and for merges that name tokens the vocabulary lacks.
  Bpe(StringMap<std::int32_t> vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, bool ignore_merges);

  /// Appends the ids of one pre-token (raw bytes).
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;
  const StringMap<std::int32_t>& vocabulary() const noexcept { return vocabulary_; }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t result;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  const Merge* find(std::int32_t left, std::int32_t right) const {
    auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

  StringMap<std::int32_t> vocabulary_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
  bool ignore_merges_;
};

}  // namespace consist::tokenizer
