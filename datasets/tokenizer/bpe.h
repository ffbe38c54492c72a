// Byte-pair encoding (Sennrich et al., 2016): over bytes, as GPT-2 and its successors use it, or over characters, as Llama 2
// does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

struct BpeSettings {
  /// A piece that is a token as a whole is that token, whatever the merges.
  bool ignore_merges = false;
  /// Merging begins with characters instead of bytes. A character without a token becomes its bytes' tokens <0x00>..<0xFF> if
  /// `byte_fallback` is set and all of them exist, else `unknown`.
  bool characters = false;
  bool byte_fallback = false;
  std::optional<std::int32_t> unknown = {};
  bool fuse_unknown = false;  ///< neighbours that are unknown become one `unknown`
};

/// Stands for a space in vocabularies of characters (SentencePiece): U+2581.
inline constexpr std::string_view word_mark = "\xe2\x96\x81";

/// Immutable once made; encode() may be called from several threads.
class Bpe {
 public:
  /// `vocabulary`: tokens as raw bytes (already translated back from byte-level characters) to ids. `merges`: pairs of such
  /// tokens, best first. Throws DataError for a byte that has no token, for merges that name tokens the vocabulary lacks, and if
  /// a character could be lost, having neither a token nor bytes nor `unknown`.
  Bpe(StringMap<std::int32_t> vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeSettings settings);

  /// Appends the ids of one pre-token: raw bytes, or with `characters` valid UTF-8.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;
  const StringMap<std::int32_t>& vocabulary() const noexcept { return vocabulary_; }
  const BpeSettings& settings() const noexcept { return settings_; }
  /// True if a text may be cut before each word_mark that follows another character, and its pieces encoded one by one, with the
  /// same ids: no merge crosses such a place.
  bool words_are_apart() const noexcept { return words_are_apart_; }

 private:
  /// A part of the piece that has become one token; parts form a list so that merging is constant time.
  struct Part {
    std::int32_t id;
    int previous, next;   // -1: none
    std::int32_t length;  // in bytes; 0: merged away
  };
  std::vector<Part> bytes_of(std::string_view piece) const;
  std::vector<Part> characters_of(std::string_view piece) const;
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
  std::array<std::int32_t, 256> byte_ids_{};  // -1: there is none
  std::unordered_map<std::uint64_t, Merge> merges_;
  BpeSettings settings_;
  bool words_are_apart_ = false;
};

}  // namespace consist::tokenizer
