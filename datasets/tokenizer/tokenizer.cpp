#include "datasets/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "consist/error.h"
#include "core/files/input_file.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {

/// Ids of pieces that were encoded before: the same words come again and again.
struct Tokenizer::Cache {
  static constexpr std::size_t most = 1 << 17;
  std::shared_mutex mutex;
  StringMap<std::vector<std::int32_t>> ids;
};

Tokenizer Tokenizer::from_file(const std::string& path) {
  const std::string json = read_text(path, tokenizer_most_bytes);
  try {
    return Tokenizer(parse_tokenizer_json(json));
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

Tokenizer::Tokenizer(Parts parts) : parts_(std::move(parts)), cache_(std::make_unique<Cache>()) {
  std::int32_t largest = -1;
  for (const auto& [token, id] : parts_.bpe->vocabulary()) largest = std::max(largest, id);
  for (const AddedToken& added : parts_.added) largest = std::max(largest, added.id);
  tokens_.resize(static_cast<std::size_t>(largest) + 1);
  special_.resize(tokens_.size(), false);
  for (const auto& [token, id] : parts_.bpe->vocabulary()) tokens_[static_cast<std::size_t>(id)] = token;
  for (auto& table : added_of_byte_) table.resize(256);
  for (std::size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& added = parts_.added[i];
    tokens_[static_cast<std::size_t>(added.id)] = added.text;
    special_[static_cast<std::size_t>(added.id)] = added.special;
    added_of_byte_[added.normalized ? 1 : 0][static_cast<unsigned char>(added.text[0])].push_back(i);
  }
  for (const std::vector<std::int32_t>* side : {&parts_.before, &parts_.after}) {
    for (std::int32_t id : *side) {
      if (id > largest || tokens_[static_cast<std::size_t>(id)].empty()) {
        throw DataError("tokenizer.json: \"post_processor\" adds the token " + std::to_string(id) + ", which does not exist");
      }
    }
  }
  for (auto& table : added_of_byte_) {
    for (auto& candidates : table) {  // of several that match at one place the longest counts
      std::stable_sort(candidates.begin(), candidates.end(),
                       [&](std::size_t a, std::size_t b) { return parts_.added[a].text.size() > parts_.added[b].text.size(); });
    }
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::optional<std::int32_t> Tokenizer::added_token(std::string_view text) const noexcept {
  for (const AddedToken& added : parts_.added) {
    if (added.text == text) return added.id;
  }
  return std::nullopt;
}

template <typename Rest>
void Tokenizer::find_added(std::string_view text, bool normalized, std::vector<std::int32_t>& ids, Rest rest) const {
  const auto& table = added_of_byte_[normalized ? 1 : 0];
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* match = nullptr;
    for (std::size_t i : table[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at).starts_with(parts_.added[i].text)) {
        match = &parts_.added[i];
        break;
      }
    }
    if (match == nullptr) {
      ++at;
      continue;
    }
    if (at > done) rest(text.substr(done, at - done));
    ids.push_back(match->id);
    at += match->text.size();
    done = at;
  }
  if (done < text.size()) rest(text.substr(done));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  if (const std::size_t bad = invalid_utf8(text); bad != std::string_view::npos) {
    throw DataError("the text is not valid UTF-8 at byte " + std::to_string(bad) + "; convert it first");
  }
  std::vector<std::int32_t> ids;
  if (special) ids = parts_.before;
  find_added(text, false, ids, [&](std::string_view rest) {
    if (parts_.nfc) {
      encode_normalized(to_nfc(rest), ids);
    } else {
      encode_normalized(rest, ids);
    }
  });
  if (special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

void Tokenizer::encode_normalized(std::string_view text, std::vector<std::int32_t>& ids) const {
  find_added(text, true, ids, [&](std::string_view rest) { encode_plain(rest, ids); });
}

void Tokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::vector<std::string_view> pieces{text}, finer;
  std::string prefixed;
  for (std::size_t step = 0; step <= parts_.splits.size(); ++step) {
    // ByteLevel's own expression comes after its prefix space; it is the last one.
    if (parts_.add_prefix_space && step + 1 >= parts_.splits.size() && prefixed.empty() && pieces.size() == 1 &&
        !pieces[0].empty() && pieces[0][0] != ' ') {
      (prefixed = ' ').append(pieces[0]);
      pieces[0] = prefixed;
    }
    if (step == parts_.splits.size()) break;
    finer.clear();
    for (std::string_view piece : pieces) parts_.splits[step].split(piece, finer);
    pieces.swap(finer);
  }
  for (std::string_view piece : pieces) {
    {
      std::shared_lock lock(cache_->mutex);
      if (auto known = cache_->ids.find(piece); known != cache_->ids.end()) {
        ids.insert(ids.end(), known->second.begin(), known->second.end());
        continue;
      }
    }
    const std::size_t first = ids.size();
    parts_.bpe->encode(piece, ids);
    constexpr std::size_t worth_keeping = 64;  // longer pieces rarely come again
    if (piece.size() > worth_keeping) continue;
    std::unique_lock lock(cache_->mutex);
    if (cache_->ids.size() >= Cache::most) cache_->ids.clear();
    cache_->ids.emplace(piece, std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()));
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
      throw DataError("there is no token " + std::to_string(id) + " in a vocabulary of " + std::to_string(tokens_.size()));
    }
    if (!special_[static_cast<std::size_t>(id)]) text += tokens_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace consist::tokenizer
