// Files of token ids. With a header (what `consist tokenize` writes), all numbers little-endian:
//
//     offset  bytes
//          0      8  "CONSTOK\n"
//          8      4  version: 1
//         12      4  bytes per token: 2 or 4
//         16      8  number of tokens
//         24      4  largest id in the file
//         28      4  vocabulary size of the tokenizer
//         32      4  id that separates documents; 0xffffffff: none
//         36      4  0
//         40     64  SHA-256 of the tokenizer.json, in hexadecimal; NULs: unknown
//        104     24  0
//        128         the ids, as u16 or u32, to the end of the file
//
// Without a header a file is ids to its end, as other programs write them; then the width must be said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "consist/files.h"
#include "datasets/packing/packed_stream.h"

namespace consist::packing {

struct TokenFileHeader {
  static constexpr std::int64_t bytes = 128;
  int width = 2;  ///< bytes per token: 2 or 4
  std::int64_t tokens = 0;
  std::uint32_t largest = 0;
  std::uint32_t vocabulary = 0;
  std::optional<std::uint32_t> separator;
  std::string tokenizer_sha256;  ///< 64 digits, or empty
};

enum class TokenFileFormat { header, u16, u32 };

/// A token file for reading. Reads by position, so that files larger than the memory cost none; the system's cache does the rest.
class TokenFile final : public TokenSource {
 public:
  /// Throws SystemError if it cannot be read, and DataError if it is no such file, cut off, or of another length than its header
  /// says.
  TokenFile(std::string path, TokenFileFormat format);
  std::int64_t size() const noexcept override { return header_.tokens; }
  /// An id above 2^31 - 1 is a DataError.
  void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
  /// Without a header: only width and tokens are known.
  const TokenFileHeader& header() const noexcept { return header_; }
  const std::string& path() const noexcept { return file_.path(); }

 private:
  InputFile file_;
  TokenFileHeader header_;
  std::int64_t offset_ = 0;
};

/// Several files, read as if they were one.
class TokenFiles final : public TokenSource {
 public:
  /// At least one.
  explicit TokenFiles(std::vector<TokenFile> files);
  std::int64_t size() const noexcept override { return starts_.back(); }
  void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
  const std::vector<TokenFile>& files() const noexcept { return files_; }

 private:
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // of each file, and the end of the last
};

/// Writes a token file that appears under its name only when it is whole (see AtomicFile).
class TokenFileWriter {
 public:
  /// `header` gives vocabulary, separator and tokenizer; the width follows from the vocabulary.
  TokenFileWriter(std::string path, TokenFileHeader header);
  void write(std::span<const std::int32_t> tokens);
  /// Completes the header and gives the file its name.
  void commit();
  const TokenFileHeader& header() const noexcept { return header_; }

 private:
  AtomicFile file_;
  TokenFileHeader header_;
  std::vector<char> buffer_;
};

}  // namespace consist::packing
