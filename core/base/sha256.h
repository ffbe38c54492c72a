// SHA-256 of what is written and read. Chosen over CRC32C and XXH3 because it is at hand (the core uses libcrypto for the job's
// token already), anyone can check a file with sha256sum, and with the processor's instructions it keeps up with disks (1.8 GB/s
// on one core of an x86 with sha_ni, about 0.5 GB/s without).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/files.h"

namespace consist {

/// Throws SystemError if libcrypto refuses.
class CONSIST_API Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(const void* data, std::size_t bytes);
  /// 64 hexadecimal digits, as sha256sum prints them. Ends the computation.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// A digest that several threads compute: the SHA-256 of those of the blocks of `block` bytes that the data consists of (in
/// hexadecimal, one behind the other); of no more than one block its own. Used from one thread. Throws SystemError.
class CONSIST_API BlockedSha256 {
 public:
  static constexpr std::int64_t block = std::int64_t{16} << 20;

  /// `threads` hash beside the caller.
  explicit BlockedSha256(int threads);
  ~BlockedSha256();
  BlockedSha256(const BlockedSha256&) = delete;
  BlockedSha256& operator=(const BlockedSha256&) = delete;

  void update(const void* data, std::size_t bytes);
  /// Ends the computation.
  std::string hex();

 private:
  struct Hashed {
    std::string digest;
    std::vector<char> buffer;  // to be used again
  };
  void hash_filled();
  void take_oldest();

  const std::size_t threads_;
  std::vector<char> filling_;
  std::vector<std::vector<char>> spare_;
  std::deque<std::future<Hashed>> hashing_;
  std::string digests_;
  std::int64_t blocks_ = 0;
};

CONSIST_API std::string sha256_of(std::string_view text);
/// Digest of the whole file. Throws as InputFile::read does.
CONSIST_API std::string sha256_of(const InputFile& file);
/// The digest that BlockedSha256 makes of the whole file. Throws as InputFile::read does.
CONSIST_API std::string blocked_sha256_of(const InputFile& file, int threads);

}  // namespace consist
