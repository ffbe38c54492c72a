#include "core/base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;

void check(int result) {
  if (result != 1) throw SystemError("libcrypto cannot compute SHA-256; is it restricted by a policy of this machine?");
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

}  // namespace consist
