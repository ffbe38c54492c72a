#include "datasets/tokenizer/bpe.h"

#include <algorithm>
#include <cstdio>
#include <queue>

#include "consist/error.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {

Bpe::Bpe(StringMap<std::int32_t> vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeSettings settings)
    : vocabulary_(std::move(vocabulary)), settings_(settings) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    char fallback[8];
    std::snprintf(fallback, sizeof fallback, "<0x%02X>", static_cast<unsigned>(byte));
    const auto token = vocabulary_.find(settings_.characters ? std::string_view(fallback) : std::string_view(&c, 1));
    byte_ids_[static_cast<std::size_t>(byte)] = token == vocabulary_.end() ? -1 : token->second;
    if (token != vocabulary_.end()) continue;
    if (!settings_.characters)
      throw DataError("model.vocab has no token for the byte " + std::to_string(byte) + "; it is not byte-level");
    if (settings_.byte_fallback && !settings_.unknown) {
      throw DataError(std::string("model.vocab has no token ") + fallback +
                      ", and there is no model.unk_token: characters without a token would be lost");
    }
  }
  if (settings_.characters && !settings_.byte_fallback && !settings_.unknown)
    throw DataError("there is neither model.byte_fallback nor model.unk_token: characters without a token would be lost");
  words_are_apart_ = settings_.characters && !settings_.ignore_merges && vocabulary_.contains(word_mark);
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto l = vocabulary_.find(left), r = vocabulary_.find(right), both = vocabulary_.find(left + right);
    if (l == vocabulary_.end() || r == vocabulary_.end() || both == vocabulary_.end()) {
      throw DataError("model.merges[" + std::to_string(rank) + "] names a token that model.vocab does not have");
    }
    if (right.starts_with(word_mark) && !left.ends_with(word_mark)) words_are_apart_ = false;
    // A pair that is listed again takes its later rank, as in the reference.
    merges_[key(l->second, r->second)] = {static_cast<std::int32_t>(rank), both->second};
  }
}

namespace {

struct Candidate {
  std::int32_t rank, result;
  int at;
  std::int32_t length;  // of both parts together, when the candidate was found: outdated if it has changed
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

std::vector<Bpe::Part> Bpe::bytes_of(std::string_view piece) const {
  std::vector<Part> parts;
  parts.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const int at = static_cast<int>(i);
    parts.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], at - 1, i + 1 < piece.size() ? at + 1 : -1, 1});
  }
  return parts;
}

std::vector<Bpe::Part> Bpe::characters_of(std::string_view piece) const {
  std::vector<Part> parts;
  const auto add = [&](std::int32_t id, std::size_t bytes) {
    const int at = static_cast<int>(parts.size());
    if (at > 0) parts.back().next = at;
    parts.push_back({id, at - 1, -1, static_cast<std::int32_t>(bytes)});
  };
  // As in the reference, what is unknown waits for the next character that has a token; bytes pass it by.
  std::size_t unknown_bytes = 0;
  const auto add_unknown = [&] {
    if (unknown_bytes > 0) add(*settings_.unknown, unknown_bytes);
    unknown_bytes = 0;
  };
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  for (std::size_t i = 0, length = 0; i < piece.size(); i += length) {
    read_utf8(piece, i, length);
    const std::string_view character = piece.substr(i, length);
    if (const auto token = vocabulary_.find(character); token != vocabulary_.end()) {
      add_unknown();
      add(token->second, length);
    } else if (settings_.byte_fallback &&
               std::all_of(character.begin(), character.end(), [&](char byte) { return id_of(byte) >= 0; })) {
      for (const char byte : character) add(id_of(byte), 1);
    } else {
      if (!settings_.fuse_unknown) add_unknown();
      unknown_bytes += length;
    }
  }
  add_unknown();
  return parts;
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  if (settings_.ignore_merges) {
    if (auto whole = vocabulary_.find(piece); whole != vocabulary_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<Part> parts = settings_.characters ? characters_of(piece) : bytes_of(piece);
  std::priority_queue<Candidate> queue;
  auto consider = [&](int at) {
    if (at < 0 || parts[static_cast<std::size_t>(at)].next < 0) return;
    const Part& left = parts[static_cast<std::size_t>(at)];
    const Part& right = parts[static_cast<std::size_t>(left.next)];
    if (const Merge* merge = find(left.id, right.id)) queue.push({merge->rank, merge->result, at, left.length + right.length});
  };
  for (int at = 0; at + 1 < static_cast<int>(parts.size()); ++at) consider(at);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Part& left = parts[static_cast<std::size_t>(best.at)];
    if (left.length == 0 || left.next < 0) continue;
    Part& right = parts[static_cast<std::size_t>(left.next)];
    const Merge* merge = left.length + right.length == best.length ? find(left.id, right.id) : nullptr;
    if (merge == nullptr || merge->rank != best.rank) continue;
    left.id = best.result;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (left.next >= 0) parts[static_cast<std::size_t>(left.next)].previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
  for (int at = 0; at >= 0; at = parts[static_cast<std::size_t>(at)].next) ids.push_back(parts[static_cast<std::size_t>(at)].id);
}

}  // namespace consist::tokenizer
