#include "datasets/tokenizer/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <shared_mutex>

#include "consist/error.h"
#include "consist/files.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {

/// Ids of pieces that were encoded before: the same words come again and again.
struct Tokenizer::Cache {
  static constexpr std::size_t most = 1 << 17;
  std::shared_mutex mutex;
  StringMap<std::vector<std::int32_t>> ids;
};

namespace {

/// Returns the bytes of a token of a vocabulary of characters: for <0x0A> the byte 0x0A, for marks spaces.
std::string bytes_of_word(std::string_view token) {
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') && is_digit(token[3]) && is_digit(token[4]))
    return std::string(1, static_cast<char>(std::stoi(std::string(token.substr(3, 2)), nullptr, 16)));
  return with_replaced(token, word_mark, " ");
}

}  // namespace

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
  for (const auto& [token, id] : parts_.bpe->vocabulary()) {
    tokens_[static_cast<std::size_t>(id)] = parts_.bpe->settings().characters ? bytes_of_word(token) : token;
  }
  for (auto& table : added_of_byte_) table.resize(256);
  for (std::size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& added = parts_.added[i];
    tokens_[static_cast<std::size_t>(added.id)] = parts_.bpe->settings().characters ? added.text : added.found_as;
    special_[static_cast<std::size_t>(added.id)] = added.special;
    added_of_byte_[added.normalized ? 1 : 0][static_cast<unsigned char>(added.found_as[0])].push_back(i);
  }
  for (const std::vector<std::int32_t>* side : {&parts_.before, &parts_.after}) {
    for (std::int32_t id : *side) {
      if (id > largest || tokens_[static_cast<std::size_t>(id)].empty()) {
        throw DataError("tokenizer.json: \"post_processor\" adds the token " + std::to_string(id) + ", which does not exist");
      }
    }
  }
  puts_space_first_ = (parts_.metaspace && parts_.metaspace->prepend != Metaspace::Prepend::never) ||
                      std::any_of(parts_.normalizer.begin(), parts_.normalizer.end(), [](const Normalization& step) {
                        return step.kind == Normalization::Kind::prepend && step.content == word_mark;
                      });
  for (auto& table : added_of_byte_) {
    for (auto& candidates : table) {  // of several that match at one place the longest counts
      std::stable_sort(candidates.begin(), candidates.end(), [&](std::size_t a, std::size_t b) {
        return parts_.added[a].found_as.size() > parts_.added[b].found_as.size();
      });
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

std::optional<std::int32_t> Tokenizer::token(std::string_view text) const {
  if (const auto added = added_token(text)) return added;
  const auto found = parts_.bpe->vocabulary().find(text);
  return found == parts_.bpe->vocabulary().end() ? std::nullopt : std::optional(found->second);
}

template <typename Rest>
void Tokenizer::find_added(std::string_view text, bool normalized, std::vector<std::int32_t>& ids, Rest rest) const {
  const auto& table = added_of_byte_[normalized ? 1 : 0];
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* match = nullptr;
    for (std::size_t i : table[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at).starts_with(parts_.added[i].found_as)) {
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
    at += match->found_as.size();
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
  find_added(text, false, ids, [&](std::string_view rest) { encode_between(rest, rest.data() == text.data(), ids); });
  if (special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

/// Sets the marks of the ids from `first_id` on, which encode_between() made of `text`: those that hold a byte of a marked range.
/// Tokens are counted in the bytes that they stand for, which are those of the text after normalization.
void Tokenizer::mark_between(std::string_view text, std::size_t first_id, const Ranges& marked, MarkedIds& out) const {
  NormalizedLengths lengths(text, parts_.normalizer, parts_.bpe->settings().characters ? word_mark : std::string_view());
  const auto bytes_of = [&](std::size_t id) -> const std::string& { return tokens_[static_cast<std::size_t>(out.ids[id])]; };
  std::size_t all = 0;
  for (std::size_t id = first_id; id < out.ids.size(); ++id) all += bytes_of(id).size();
  const std::size_t expected = NormalizedLengths(lengths).of_first(text.size());
  const bool has_space_more = all == expected + 1 && bytes_of(first_id).starts_with(' ') && !text.starts_with(' ');
  if (all != expected && !has_space_more) {
    throw DataError("the tokenizer makes " + std::to_string(all) + " bytes of a text of " + std::to_string(expected) +
                    ": it loses characters, so that places in the text are not those of tokens");
  }
  const std::size_t more = has_space_more ? 1 : 0;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const auto& [begin, end] : marked) {
    const std::size_t from = begin == 0 ? 0 : lengths.of_first(begin) + more;
    places.emplace_back(from, lengths.of_first(end) + more);
  }
  std::size_t at = 0, next = 0;
  for (std::size_t id = first_id; id < out.ids.size(); ++id) {
    const std::size_t end = at + bytes_of(id).size();
    while (next < places.size() && places[next].second <= at) ++next;
    out.marked.push_back(next < places.size() && places[next].first < end);
    at = end;
  }
}

MarkedIds Tokenizer::encode_marked(std::span<const MarkedText> parts) const {
  std::string text;
  Ranges ranges;
  for (const MarkedText& part : parts) {
    if (part.marked && !part.text.empty()) {
      if (ranges.empty() || ranges.back().second != text.size()) ranges.emplace_back(text.size(), text.size());
      ranges.back().second += part.text.size();
    }
    text += part.text;
  }
  if (const std::size_t bad = invalid_utf8(text); bad != std::string_view::npos)
    throw DataError("the text is not valid UTF-8 at byte " + std::to_string(bad) + "; convert it first");
  MarkedIds out;
  std::size_t at = 0;
  /// The parts of marked ranges in [at, end), counted from `at`.
  const auto ranges_before = [&](std::size_t end) {
    Ranges here;
    auto range = std::upper_bound(ranges.begin(), ranges.end(), at, [](std::size_t a, const auto& r) { return a < r.second; });
    for (; range != ranges.end() && range->first < end; ++range)
      here.emplace_back(std::max(range->first, at) - at, std::min(range->second, end) - at);
    return here;
  };
  const auto mark_added = [&] {
    for (std::size_t id = out.marked.size(); id < out.ids.size(); ++id) {
      const std::size_t end = at + tokens_[static_cast<std::size_t>(out.ids[id])].size();
      out.marked.push_back(!ranges_before(end).empty());
      at = end;
    }
  };
  find_added(text, false, out.ids, [&](std::string_view rest) {
    mark_added();
    const std::size_t first_id = out.ids.size();
    encode_between(rest, at == 0, out.ids);
    mark_between(rest, first_id, ranges_before(at + rest.size()), out);
    at += rest.size();
  });
  mark_added();
  return out;
}

void Tokenizer::encode_between(std::string_view text, bool first, std::vector<std::int32_t>& ids) const {
  if (parts_.normalizer.empty()) {
    encode_normalized(text, first, ids);
  } else {
    encode_normalized(normalized(text, parts_.normalizer), first, ids);
  }
}

void Tokenizer::encode_normalized(std::string_view text, bool first, std::vector<std::int32_t>& ids) const {
  find_added(text, true, ids, [&](std::string_view rest) { encode_plain(rest, first && rest.data() == text.data(), ids); });
}

void Tokenizer::encode_words(std::string_view text, bool first, std::vector<std::int32_t>& ids) const {
  std::string marked;
  std::string_view mark = word_mark;
  if (parts_.metaspace) {
    const Metaspace& metaspace = *parts_.metaspace;
    mark = metaspace.mark;
    marked = with_replaced(text, " ", mark);
    const bool prepends =
        metaspace.prepend == Metaspace::Prepend::always || (metaspace.prepend == Metaspace::Prepend::first && first);
    if (prepends && !marked.starts_with(mark)) marked.insert(0, mark);
    text = marked;
  }
  const bool cuts_each = parts_.metaspace && parts_.metaspace->split;
  if (!cuts_each && !(parts_.bpe->words_are_apart() && mark == word_mark)) return encode_piece(text, ids);
  // Metaspace cuts before each mark. Where it does not, a run of marks stays together, since merges may join them.
  std::size_t done = 0;
  for (std::size_t at = text.find(mark, 1); at != std::string_view::npos; at = text.find(mark, at + mark.size())) {
    if (!cuts_each && text.substr(0, at).ends_with(mark)) continue;
    encode_piece(text.substr(done, at - done), ids);
    done = at;
  }
  encode_piece(text.substr(done), ids);
}

void Tokenizer::encode_plain(std::string_view text, bool first, std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  if (parts_.bpe->settings().characters) return encode_words(text, first, ids);
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
  for (std::string_view piece : pieces) encode_piece(piece, ids);
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  {
    std::shared_lock lock(cache_->mutex);
    if (auto known = cache_->ids.find(piece); known != cache_->ids.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  const std::size_t first = ids.size();
  parts_.bpe->encode(piece, ids);
  constexpr std::size_t worth_keeping = 64;  // longer pieces rarely come again
  if (piece.size() > worth_keeping) return;
  std::unique_lock lock(cache_->mutex);
  if (cache_->ids.size() >= Cache::most) cache_->ids.clear();
  cache_->ids.emplace(piece, std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()));
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
    throw DataError("there is no token " + std::to_string(id) + " in a vocabulary of " + std::to_string(tokens_.size()));
  }
  return special_[static_cast<std::size_t>(id)] ? std::string_view() : tokens_[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) text += bytes_of(id);
  if (puts_space_first_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace consist::tokenizer
