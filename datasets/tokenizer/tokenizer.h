// A Hugging Face tokenizer.json: byte-level BPE as Llama-3, Qwen and GPT-2 use it, and BPE over characters with byte fallback as
// Llama 2 does, with the results of the library `tokenizers`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/tokenizer/bpe.h"
#include "datasets/tokenizer/normalizer.h"
#include "datasets/tokenizer/pre_tokenizer.h"

namespace consist::tokenizer {

/// A token that is found in the text before anything else happens to it.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = false;     ///< left out by decode()
  bool normalized = false;  ///< looked for after normalization instead of before
  std::string found_as;     ///< what is looked for: the text, normalized if the above is set
};

/// The pre-tokenizer of vocabularies of characters: spaces become `mark`.
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string mark;
  Prepend prepend = Prepend::always;  ///< a mark before a text that does not begin with one; first: only at the very beginning
  bool split = true;                  ///< cuts before every mark
};

/// Contents of a tokenizer.json, as far as they are supported.
struct Parts {
  std::vector<Normalization> normalizer;
  std::vector<RegexSplit> splits;      ///< one after the other
  bool add_prefix_space = false;       ///< ByteLevel's
  std::optional<Metaspace> metaspace;  ///< of a model over characters, instead of splits
  std::unique_ptr<Bpe> bpe;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> before, after;  ///< special tokens around every text (TemplateProcessing)
};

/// The largest tokenizer.json that is read; the largest published ones have about 30 MB.
inline constexpr std::int64_t tokenizer_most_bytes = 256 << 20;

/// Reads the text of a tokenizer.json. A part that is not supported is a DataError that names the field.
Parts parse_tokenizer_json(std::string_view json);

/// A piece of a text.
struct MarkedText {
  std::string text;
  bool marked = false;
};

struct MarkedIds {
  std::vector<std::int32_t> ids;
  std::vector<bool> marked;  ///< by id
};

/// Immutable; encode() and decode() may be called from several threads.
class Tokenizer {
 public:
  /// Throws DataError or SystemError naming the file.
  static Tokenizer from_file(const std::string& path);
  explicit Tokenizer(Parts parts);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// Ids of a text of valid UTF-8; invalid is a DataError with the offset of the byte. With `special`, the post-processor's
  /// tokens around it.
  std::vector<std::int32_t> encode(std::string_view text, bool special = true) const;
  /// The same of the texts of `parts`, one behind the other, without the post-processor's tokens; `marked` is set for the tokens that
  /// hold a byte of a part that is marked. Throws DataError also where the tokenizer loses characters, so that places in the text
  /// are not those of tokens.
  MarkedIds encode_marked(std::span<const MarkedText> parts) const;
  /// The bytes of the tokens, special ones left out; with a model over characters, its marks are spaces again, but for the one
  /// that encode() put first. Throws DataError for an id that does not exist.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// The bytes of one token wherever it stands, none of a special one: marks are spaces. Throws as decode().
  std::string_view bytes_of(std::int32_t id) const;

  /// One more than the largest id.
  std::int32_t vocabulary_size() const noexcept { return static_cast<std::int32_t>(tokens_.size()); }
  /// The id of an added token, for example "<|endoftext|>".
  std::optional<std::int32_t> added_token(std::string_view text) const noexcept;
  /// The same, or the id of a token of the vocabulary.
  std::optional<std::int32_t> token(std::string_view text) const;
  /// The text of an id in 0..vocabulary_size() - 1, added tokens as they are written.
  const std::string& text_of(std::int32_t id) const { return tokens_.at(static_cast<std::size_t>(id)); }

 private:
  struct Cache;
  /// Ids of a text between two added tokens that are found before normalization; `first`: it begins the whole text.
  void encode_between(std::string_view text, bool first, std::vector<std::int32_t>& ids) const;
  using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;  // of bytes, in order, without overlaps
  void mark_between(std::string_view text, std::size_t first_id, const Ranges& marked, MarkedIds& out) const;
  void encode_normalized(std::string_view text, bool first, std::vector<std::int32_t>& ids) const;
  void encode_plain(std::string_view text, bool first, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, bool first, std::vector<std::int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;
  template <typename Rest>
  void find_added(std::string_view text, bool normalized, std::vector<std::int32_t>& ids, Rest rest) const;

  Parts parts_;
  std::vector<std::string> tokens_;  // bytes by id
  std::vector<bool> special_;
  bool puts_space_first_ = false;
  std::vector<std::vector<std::size_t>> added_of_byte_[2];  // [normalized][first byte]
  std::unique_ptr<Cache> cache_;
};

}  // namespace consist::tokenizer
