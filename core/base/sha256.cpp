#include "core/base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "consist/error.h"
#include "core/base/in_parallel.h"

namespace consist {
namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;

void check(int result) {
  if (result != 1) throw SystemError("libcrypto cannot compute SHA-256; is it restricted by a policy of this machine?");
}

/// `digests`: of the blocks, one behind the other.
std::string digest_of_blocks(const std::string& digests, std::int64_t blocks) {
  return blocks == 1 ? digests : sha256_of(digests);
}

}  // namespace

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> evp{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  check(EVP_DigestInit_ex(context_->evp.get(), EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;

void Sha256::update(const void* data, std::size_t bytes) {
  check(EVP_DigestUpdate(context_->evp.get(), data, bytes));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check(EVP_DigestFinal_ex(context_->evp.get(), digest.data(), &length));
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += digits[digest[i] >> 4];
    text += digits[digest[i] & 15];
  }
  return text;
}

BlockedSha256::BlockedSha256(int threads) : threads_(static_cast<std::size_t>(std::max(threads, 1))) {
  filling_.reserve(block);
}

BlockedSha256::~BlockedSha256() = default;  // a future waits for its thread

void BlockedSha256::take_oldest() {
  Hashed oldest = hashing_.front().get();
  hashing_.pop_front();
  digests_ += oldest.digest;
  oldest.buffer.clear();
  spare_.push_back(std::move(oldest.buffer));
}

void BlockedSha256::hash_filled() {
  if (hashing_.size() == threads_) take_oldest();
  hashing_.push_back(std::async(std::launch::async, [data = std::move(filling_)]() mutable {
    std::string digest = sha256_of(std::string_view(data.data(), data.size()));
    return Hashed{std::move(digest), std::move(data)};
  }));
  ++blocks_;
  filling_ = {};
  if (!spare_.empty()) {
    filling_ = std::move(spare_.back());
    spare_.pop_back();
  }
  filling_.reserve(block);
}

void BlockedSha256::update(const void* data, std::size_t bytes) {
  for (const char* from = static_cast<const char*>(data); bytes > 0;) {
    if (filling_.size() == block) hash_filled();
    const std::size_t count = std::min(bytes, static_cast<std::size_t>(block) - filling_.size());
    filling_.insert(filling_.end(), from, from + count);
    from += count;
    bytes -= count;
  }
}

std::string BlockedSha256::hex() {
  if (!filling_.empty() || blocks_ == 0) hash_filled();
  while (!hashing_.empty()) take_oldest();
  return digest_of_blocks(digests_, blocks_);
}

std::string sha256_of(std::string_view text) {
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.hex();
}

std::string sha256_of(const InputFile& file) {
  Sha256 digest;
  std::vector<char> block(static_cast<std::size_t>(std::min<std::int64_t>(file.size(), kBlock)));
  for (std::int64_t at = 0; at < file.size(); at += static_cast<std::int64_t>(block.size())) {
    const auto bytes =
        static_cast<std::size_t>(std::min<std::int64_t>(file.size() - at, static_cast<std::int64_t>(block.size())));
    file.read(at, block.data(), bytes);
    digest.update(block.data(), bytes);
  }
  return digest.hex();
}

std::string blocked_sha256_of(const InputFile& file, int threads) {
  const std::int64_t size = file.size(),
                     blocks = std::max<std::int64_t>((size + BlockedSha256::block - 1) / BlockedSha256::block, 1);
  std::vector<std::string> digests(static_cast<std::size_t>(blocks));
  const auto readers = static_cast<std::size_t>(std::min<std::int64_t>(std::max(threads, 1), blocks));
  in_parallel(readers, static_cast<int>(readers), [&](std::size_t reader) {
    std::vector<char> data(static_cast<std::size_t>(std::min(size, BlockedSha256::block)));
    for (std::size_t at = reader; at < digests.size(); at += readers) {
      const std::int64_t first = static_cast<std::int64_t>(at) * BlockedSha256::block;
      const auto bytes = static_cast<std::size_t>(std::min(size - first, BlockedSha256::block));
      file.read(first, data.data(), bytes);
      digests[at] = sha256_of(std::string_view(data.data(), bytes));
    }
  });
  std::string all;
  for (const std::string& digest : digests) all += digest;
  return digest_of_blocks(all, blocks);
}

}  // namespace consist
