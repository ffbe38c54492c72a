#include "datasets/tokenizer/bpe.h"

#include <queue>

#include "consist/error.h"

namespace consist::tokenizer {

Bpe::Bpe(StringMap<std::int32_t> vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, bool ignore_merges)
    : vocabulary_(std::move(vocabulary)), ignore_merges_(ignore_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    auto token = vocabulary_.find(std::string_view(&c, 1));
    if (token == vocabulary_.end())
      throw DataError("model.vocab has no token for the byte " + std::to_string(byte) + "; it is not byte-level");
    byte_ids_[static_cast<std::size_t>(byte)] = token->second;
  }
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto l = vocabulary_.find(left), r = vocabulary_.find(right), both = vocabulary_.find(left + right);
    if (l == vocabulary_.end() || r == vocabulary_.end() || both == vocabulary_.end()) {
      throw DataError("model.merges[" + std::to_string(rank) + "] names a token that model.vocab does not have");
    }
    // A pair that is listed again takes its later rank, as in the reference.
    merges_[key(l->second, r->second)] = {static_cast<std::int32_t>(rank), both->second};
  }
}

namespace {

/// A part of the piece that has become one token; parts form a list so that merging is constant time.
struct Part {
  std::int32_t id;
  int previous, next;   // -1: none
  std::int32_t length;  // in bytes; 0: merged away
};

struct Candidate {
  std::int32_t rank, result;
  int at;
  std::int32_t length;  // of both parts together, when the candidate was found: outdated if it has changed
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    if (auto whole = vocabulary_.find(piece); whole != vocabulary_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<Part> parts;
  parts.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const int at = static_cast<int>(i);
    parts.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], at - 1, i + 1 < piece.size() ? at + 1 : -1, 1});
  }
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
