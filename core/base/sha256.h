// SHA-256 of what is written and read. Chosen over CRC32C and XXH3 because it is at hand (the core uses libcrypto for the job's
// token already), anyone can check a file with sha256sum, and with the processor's instructions it keeps up with disks (1.8 GB/s
// on one core of an x86 with sha_ni, about 0.5 GB/s without).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

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

CONSIST_API std::string sha256_of(std::string_view text);
/// Digest of the whole file. Throws as InputFile::read does.
CONSIST_API std::string sha256_of(const InputFile& file);

}  // namespace consist
